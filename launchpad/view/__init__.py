"""Views of a running program: in a terminal, below the output of a script, and in the browser."""
