"""One problem that the systems here can be given, so that they can be compared."""

from dataclasses import dataclass, field

import numpy as np

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.digits import Array, Digits


@dataclass(frozen=True)
class Problem:
    """Softmax regression on the digits, or more layers, by workers that each take their slice of a batch."""

    training: Digits = field(default_factory=lambda: digits.load()[0])
    workers: int = 4
    steps: int = 400
    slice_size: int = 48  # examples a worker takes of each batch
    learning_rate: float = 0.5
    widths: tuple[int, ...] = (64, 10)

    @property
    def first_parameters(self) -> Array:
        """Return random ones; zeros where there is one layer, as softmax regression can begin with them."""
        parameters = networks.first_parameters(self.widths)
        return np.zeros_like(parameters) if len(self.widths) == 2 else parameters

    def batch(self, step: int) -> Digits:
        """Return the slices of all workers together."""
        return self.training.batch(step, self.slice_size * self.workers)

    def slice(self, step: int, worker: int) -> Digits:
        """Return what a worker takes of the batch of this step."""
        part = slice(self.slice_size * worker, self.slice_size * (worker + 1))
        return self.training.batch(step, self.slice_size * self.workers, part)

    def gradient(self, parameters: Array, step: int, worker: int) -> Array:
        """Return the gradient of the mean loss on a worker's slice of the batch of this step."""
        return networks.gradient(self.widths, parameters, self.slice(step, worker))

    def train_alone(self) -> Array:
        """Return what one process learns from the whole batches."""
        parameters = self.first_parameters
        for step in range(self.steps):
            gradient = networks.gradient(self.widths, parameters, self.batch(step))
            parameters -= self.learning_rate * gradient
        return parameters


@dataclass(frozen=True)
class Learned:
    """What a system has made of it.

    Attributes:
        staleness: The largest number of others' updates that came between a worker's pull and its push.
        edges: What has gone over the edges of the program.
        problem: What was trained, if not the problem that was given.
    """

    parameters: Array
    staleness: int
    edges: lp.edges.Edges
    problem: Problem | None = None
