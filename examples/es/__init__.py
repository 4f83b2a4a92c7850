"""Evolution strategies that learn to balance a pole."""
