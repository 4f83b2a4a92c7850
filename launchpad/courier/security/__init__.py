"""What may call a server: tokens, credentials, certificates."""
