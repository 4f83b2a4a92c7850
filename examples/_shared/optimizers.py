"""Optimizers by hand, which change a flat vector of parameters in place."""

from dataclasses import dataclass

from examples._shared.data import Array


@dataclass
class Momentum:
    """Gradient descent with momentum."""

    parameters: Array
    velocity: Array
    learning_rate: float
    momentum: float

    def step(self, gradient: Array) -> None:
        self.velocity *= self.momentum
        self.velocity += gradient
        self.parameters -= self.learning_rate * self.velocity
