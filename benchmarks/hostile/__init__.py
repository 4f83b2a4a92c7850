"""A server among strangers: those who pretend to belong to its run, and those who send noise."""
