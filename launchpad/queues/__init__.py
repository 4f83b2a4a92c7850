"""Queues between workers: producers put items in, consumers take them out."""
