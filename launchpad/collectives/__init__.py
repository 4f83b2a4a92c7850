"""Collectives: groups of workers with ranks, that compute together."""
