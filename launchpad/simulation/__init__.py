"""Simulations: a program's real plan, supervisor and restart policies, with workers that exist only in time."""
