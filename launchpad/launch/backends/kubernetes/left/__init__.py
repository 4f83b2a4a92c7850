"""Runs without a launcher here: left behind on purpose, or because it was killed."""
