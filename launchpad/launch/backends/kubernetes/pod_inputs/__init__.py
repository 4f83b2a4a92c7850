"""The input of a pod: Secrets with its configuration, and archives of the project and of state."""
