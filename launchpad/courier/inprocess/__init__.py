"""Calls within one process: from thread to thread, without a socket."""
