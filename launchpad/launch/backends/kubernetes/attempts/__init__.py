"""Attempts of a launch: how each is begun, watched, ended, and how it has ended."""
