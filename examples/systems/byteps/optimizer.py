"""Gradient descent with momentum: what workers do with a sum, and servers know nothing of."""

import numpy as np

from examples._shared.digits import Array


class Momentum:
    """Lets parameters follow mean gradients, in place."""

    def __init__(self, parameters: Array, learning_rate: float, momentum: float) -> None:
        self._parameters, self._velocity = parameters, np.zeros_like(parameters)
        self._learning_rate, self._momentum = learning_rate, momentum

    def step(self, mean: Array) -> None:
        self._velocity *= self._momentum
        self._velocity += mean
        self._parameters -= self._learning_rate * self._velocity
