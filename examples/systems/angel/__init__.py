"""Angel: a parameter server in shards for sparse models, whose workers wait for each other or not."""
