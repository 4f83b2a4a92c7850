"""Asynchronous optimizers around one centre. Each is a rule for the workers and a rule for the server."""
