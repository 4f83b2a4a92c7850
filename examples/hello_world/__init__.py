"""Two nodes and the edge between them."""
