"""Views of a program that runs: in a terminal, below the output of a script, in the browser."""
