"""Calls within one process: past all sockets, and often without a hop between threads."""
