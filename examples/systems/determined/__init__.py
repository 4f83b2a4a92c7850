"""Determined: a search for hyperparameters on a cluster whose agents, and whose master, are killed."""
