"""What calls: the client, its connections, its calls in flight."""
