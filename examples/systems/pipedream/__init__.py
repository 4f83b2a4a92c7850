"""PipeDream: profile a network, plan how to cut it into stages, and train it in the pipeline of that plan."""
