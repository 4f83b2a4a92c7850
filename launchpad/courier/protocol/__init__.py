"""The protocol: the meaning of the bytes that are sent, without any I/O."""
