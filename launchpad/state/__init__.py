"""What workers save, and where."""
