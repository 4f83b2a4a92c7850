"""Adam, of one flat vector."""

import numpy as np

from examples._shared.data import Array


class Adam:
    """The optimizer of Kingma and Ba (2015). `state` are its moments, each as large as the vector."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.state = (np.zeros(size), np.zeros(size))

    def change(self, gradient: Array, step: int) -> Array:
        """Return what this step, the first of which is 1, adds to the parameters."""
        mean, square = self.state
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        self.state = mean, square
        return -self.rate * mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)) ** 0.5 + 1e-8)
