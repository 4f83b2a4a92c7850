"""What is called: the server, its threads, its connections."""
