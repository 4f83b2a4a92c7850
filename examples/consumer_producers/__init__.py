"""One consumer asks several producers at once."""
