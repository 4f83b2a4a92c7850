"""Programs to read, to run and to start your own from; each checks its own answer."""
