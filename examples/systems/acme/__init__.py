"""Acme: an agent is an actor and a learner, and both are the same classes in one process and in many."""
