"""Traffic of all kinds at once, for `benchmarks/mixed.py`: what is served, what is called, who calls."""
