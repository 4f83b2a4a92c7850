"""Views of a running program: in a terminal, below the output of the launching script, and in a browser."""
