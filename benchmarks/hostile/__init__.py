"""Hostile peers of a server: clients that do not belong to its run, and connections that send garbage."""
