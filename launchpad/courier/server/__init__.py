"""The server side of courier: the server, its threads and its connections."""
