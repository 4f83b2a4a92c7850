"""What runs in the container of a worker."""
