"""Supervision of a launch's workers: what has happened, what to do about it, and the thread that does it."""
