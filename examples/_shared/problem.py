"""One problem for all systems, so that they can be compared."""

from dataclasses import dataclass, field

import numpy as np

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.digits import Array, Digits


@dataclass(frozen=True)
class Problem:
    """Softmax regression on the digits, or a deeper network. Each worker takes a slice of every batch."""

    training: Digits = field(default_factory=lambda: digits.load()[0])
    workers: int = 4
    steps: int = 400
    slice_size: int = 48  # how many digits of each batch a worker takes
    learning_rate: float = 0.5
    widths: tuple[int, ...] = (64, 10)

    @property
    def first_parameters(self) -> Array:
        """Return zeros for softmax regression, and random parameters for more layers."""
        parameters = networks.first_parameters(self.widths)
        return np.zeros_like(parameters) if len(self.widths) == 2 else parameters

    def batch(self, step: int) -> Digits:
        """Return the slices of all workers together."""
        return self.training.batch(step, self.slice_size * self.workers)

    def slice(self, step: int, worker: int) -> Digits:
        """Return a worker's slice of the batch of this step."""
        part = slice(self.slice_size * worker, self.slice_size * (worker + 1))
        return self.training.batch(step, self.slice_size * self.workers, part)

    def gradient(self, parameters: Array, step: int, worker: int) -> Array:
        """Return the gradient of the mean loss on a worker's slice of the batch of this step."""
        return networks.gradient(self.widths, parameters, self.slice(step, worker))

    def train_alone(self) -> Array:
        """Return the parameters that one process learns from the whole batches."""
        parameters = self.first_parameters
        for step in range(self.steps):
            gradient = networks.gradient(self.widths, parameters, self.batch(step))
            parameters -= self.learning_rate * gradient
        return parameters


@dataclass(frozen=True)
class Learned:
    """The result of a system.

    Attributes:
        staleness: The largest number of other workers' updates between a worker's pull and its push.
        edges: The traffic over the edges of the program.
        problem: The problem that the system trained, if it wasn't the one that it was given.
    """

    parameters: Array
    staleness: int
    edges: lp.edges.Edges
    problem: Problem | None = None
