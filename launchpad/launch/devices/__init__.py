"""GPUs of one host: which there are, which of them we may use, and which worker gets which."""
