"""Numbers of a whole program at a moment: its edges, and what its workers use."""
