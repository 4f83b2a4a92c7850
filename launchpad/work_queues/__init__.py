"""A work queue: a set of jobs, each of which is done once, by workers that may die meanwhile."""
