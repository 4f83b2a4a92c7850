"""From a plan to running workers: setup, backends, supervision."""
