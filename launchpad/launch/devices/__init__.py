"""The GPUs of one host: those that exist, those that this process may use, and the worker that gets each."""
