"""The client side of courier: clients, their connections, and their calls in flight."""
