"""Watching the workers of a launch: what has happened, what is to be done, and the thread that does it."""
