"""Adam, the optimizer of Kingma and Ba (2015), https://arxiv.org/abs/1412.6980."""

import numpy as np

from examples._shared.data import Array


def adam(moments: Array, gradient: Array, step: int, rate: float) -> tuple[Array, Array]:
    """Return what a step adds to the parameters, and the new moments.

    Args:
        moments: Two rows, zeros at first: decaying means of the gradients and of their squares.
        step: The number of the step. The first is 1.
    """
    mean = 0.9 * moments[0] + 0.1 * gradient
    square = 0.999 * moments[1] + 0.001 * gradient**2
    unbiased_mean = mean / (1 - 0.9**step)
    unbiased_square = square / (1 - 0.999**step)
    change = -rate * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)
    return change, np.array([mean, square])
