"""Access to servers: the tokens, credentials and certificates that callers need."""
