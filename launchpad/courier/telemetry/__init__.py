"""Measurements of calls: counters, statistics and spans."""
