"""Elephas: workers train copies of a model on their partitions, and a driver puts their updates together."""
