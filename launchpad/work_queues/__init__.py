"""A work queue: a set of jobs, each of which is done once, even if workers die."""
