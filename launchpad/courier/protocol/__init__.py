"""Bytes and what they mean, without any I/O."""
