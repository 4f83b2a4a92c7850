"""The serial truth: the user's program in one process, with the textbook's Adam."""

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.networks import cross_entropy
from examples.systems.zero.adam import DECAY, DECAY_OF_SQUARE, EPSILON, RATE
from examples.systems.zero.model import BATCH, backward, first_layers, forward


class Alone:
    """All parameters, all gradients and all of Adam's state."""

    def __init__(self, layers: list[Array]) -> None:
        self.steps = 0
        self.layers = layers
        self.gradients = [0 * layer for layer in layers]
        self.m = [0 * layer for layer in layers]
        self.v = [0 * layer for layer in layers]

    def layer(self, i: int) -> Array:
        return self.layers[i]

    def give(self, i: int, gradient: Array) -> None:
        self.gradients[i] = gradient

    def update(self) -> None:
        self.steps += 1
        for i, g in enumerate(self.gradients):
            m = self.m[i] = DECAY * self.m[i] + (1 - DECAY) * g
            v = self.v[i] = DECAY_OF_SQUARE * self.v[i] + (1 - DECAY_OF_SQUARE) * g**2
            m = m / (1 - DECAY**self.steps)
            v = v / (1 - DECAY_OF_SQUARE**self.steps)
            self.layers[i] -= RATE * m / (np.sqrt(v) + EPSILON)


def train(digits: Data, steps: int) -> Alone:
    """Train; what is returned has the parameters."""
    store = Alone(first_layers())
    while store.steps < steps:
        batch = digits.batch(store.steps, BATCH)
        values = forward(store, batch.inputs)
        backward(store, values, cross_entropy(values[-1], batch)[1])
        store.update()
    return store
