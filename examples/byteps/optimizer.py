"""Gradient descent with momentum: what workers do with a sum, and servers know nothing of."""

from dataclasses import dataclass

from examples._shared.digits import Array


@dataclass
class Momentum:
    """Lets parameters follow mean gradients, in place; its state is the velocity."""

    learning_rate: float
    momentum: float
    velocity: Array | float = 0.0

    def step(self, parameters: Array, mean: Array) -> None:
        self.velocity = self.momentum * self.velocity + mean
        parameters -= self.learning_rate * self.velocity
