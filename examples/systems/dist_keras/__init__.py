"""Asynchronous optimizers over one centre variable: each is a rule for the workers and one for the server."""
