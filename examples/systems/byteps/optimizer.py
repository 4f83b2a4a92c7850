"""Gradient descent with momentum. Workers do this with a sum; servers know nothing of it."""

import numpy as np

from examples._shared.data import Array


class Momentum:
    """The optimizer. It changes the parameters in place."""

    def __init__(self, parameters: Array, learning_rate: float, momentum: float) -> None:
        self._parameters = parameters
        self._velocity = np.zeros_like(parameters)
        self._learning_rate = learning_rate
        self._momentum = momentum

    def step(self, mean: Array) -> None:
        self._velocity *= self._momentum
        self._velocity += mean
        self._parameters -= self._learning_rate * self._velocity
