"""The first process of a worker's container."""
