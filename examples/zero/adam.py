"""Adam, of one flat vector."""

import numpy as np

from examples._shared.digits import Array

RATE, DECAY, DECAY_OF_SQUARE, EPSILON = 1e-3, 0.9, 0.999, 1e-8


class Adam:
    """The optimizer of Kingma and Ba (2015). Its state are two moments, each as large as the vector."""

    def __init__(self, size: int) -> None:
        self.steps, self.mean, self.square = 0, np.zeros(size), np.zeros(size)

    def change(self, gradient: Array) -> Array:
        """Return what this step adds to the parameters."""
        self.steps += 1
        self.mean += (1 - DECAY) * (gradient - self.mean)
        self.square += (1 - DECAY_OF_SQUARE) * (gradient**2 - self.square)
        square = self.square / (1 - DECAY_OF_SQUARE**self.steps)
        return -RATE * (self.mean / (1 - DECAY**self.steps)) / (square**0.5 + EPSILON)
