"""BigDL: synchronous SGD as two short jobs an iteration, of tasks without state over blocks."""
