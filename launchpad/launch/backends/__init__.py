"""One file or folder for each way to run a plan. Other code reaches them through the registry, by name."""
