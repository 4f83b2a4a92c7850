"""Simulations: the real plan, supervisor and restart policies of a program, on a virtual clock."""
