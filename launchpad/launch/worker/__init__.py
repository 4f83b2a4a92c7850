"""The life of a worker, the same in every backend."""
