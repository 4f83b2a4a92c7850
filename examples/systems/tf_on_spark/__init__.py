"""TensorFlowOnSpark: nodes find each other by reservation, and feeders push rows to workers."""
