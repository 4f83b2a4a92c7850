"""Code that the examples share: the data, a network, and checks that print."""
