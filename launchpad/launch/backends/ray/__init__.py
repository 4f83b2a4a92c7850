"""Ray: every worker is a process that an actor of a Ray cluster starts on its node."""
