"""PipeDream: profile a network, plan its cut into stages, and train it in the pipeline of that plan."""
