"""Streams: results and arguments that arrive one item after the other."""
