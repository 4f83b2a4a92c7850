"""A cluster without containers, and a launcher that uses it: see `benchmarks/pods.py`."""
