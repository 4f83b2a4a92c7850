"""Workers' saved state: the files, the folders they are in, and the locks that protect them."""
