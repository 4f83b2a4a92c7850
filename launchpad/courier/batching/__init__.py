"""Batching: one call of a method that answers many callers."""
