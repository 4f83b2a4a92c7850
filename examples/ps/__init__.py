"""A sharded parameter server trains a classifier of handwritten digits."""
