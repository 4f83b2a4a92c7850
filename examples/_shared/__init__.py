"""What the systems in this folder share: the data, a network, and checks that print."""
