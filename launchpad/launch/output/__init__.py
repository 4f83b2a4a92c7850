"""The output of workers, on its way to the terminal."""
