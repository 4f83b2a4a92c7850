"""The objects of a run, as data."""
