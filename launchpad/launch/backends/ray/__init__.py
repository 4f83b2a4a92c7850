"""Ray: an actor of a Ray cluster starts each worker, as a process on the actor's node."""
