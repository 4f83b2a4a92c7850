"""GPipe: a network cut into stages, one per worker, and batches cut into micro-batches."""
