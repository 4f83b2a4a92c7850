"""Data parallel training by all-reduce: gradients are averaged while backward still makes them."""
