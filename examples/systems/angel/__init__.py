"""Angel: a sharded parameter server for sparse models. Workers may wait for each other, or not."""
