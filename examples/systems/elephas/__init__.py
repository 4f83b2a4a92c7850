"""Elephas: workers train copies of a model on their partitions; the driver puts together what comes of it."""
