"""Slurm: one job whose nodes join the launcher, and workers on them."""
