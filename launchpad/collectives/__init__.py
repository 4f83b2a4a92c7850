"""Collectives: groups of workers that compute together, each with a rank."""
