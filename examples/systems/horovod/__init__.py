"""Data parallel training by all-reduce, which averages gradients while backward still makes others."""
