"""Queues between workers: items go in at one end and are handled at the other."""
