"""BigDL: synchronous SGD as two short jobs per iteration, whose tasks keep no state."""
