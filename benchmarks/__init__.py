"""Scripts that measure our claims about speed. The docstring of each one says how to run it."""
