"""Who may call whom: tokens, credentials, certificates."""
