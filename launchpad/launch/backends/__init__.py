"""One file or folder for each way to run a plan. Reached through the registry, by name only."""
