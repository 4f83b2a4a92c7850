"""The called side: the server, its threads and its connections."""
