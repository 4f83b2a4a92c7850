"""GPipe: a network cut into stages, each in a worker, and batches cut into micro-batches that go through."""
