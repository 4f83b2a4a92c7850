"""Log files: how they are named, written, turned over, followed and cleared away."""
