"""What a pod is given: Secrets with its configuration, and archives of the project and of state."""
