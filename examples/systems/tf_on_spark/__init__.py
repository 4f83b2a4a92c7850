"""TensorFlowOnSpark: nodes that find each other by reservation, and feeders that push rows to workers."""
