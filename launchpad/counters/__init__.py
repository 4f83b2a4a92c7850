"""A counter: named counts that only grow, kept by one node for the whole program."""
