"""What is asked of a cluster, and how: its API, the rights for it, what becomes of pods, their logs."""
