"""Adam, of one flat vector."""

import numpy as np

from examples._shared.data import Array

RATE = 1e-3
DECAY = 0.9
DECAY_OF_SQUARE = 0.999
EPSILON = 1e-8


class Adam:
    """The optimizer of Kingma and Ba (2015). Its state is two moments, each as large as the vector."""

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)
        self.square = np.zeros(size)

    def change(self, gradient: Array, step: int) -> Array:
        """Return what this step, the first of which is 1, adds to the parameters."""
        self.mean += (1 - DECAY) * (gradient - self.mean)
        self.square += (1 - DECAY_OF_SQUARE) * (gradient**2 - self.square)
        mean = self.mean / (1 - DECAY**step)
        return -RATE * mean / ((self.square / (1 - DECAY_OF_SQUARE**step)) ** 0.5 + EPSILON)
