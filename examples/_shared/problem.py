"""One problem for all systems, so that they can be compared."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.data import Array, Data, Keys
from examples._shared.networks import Dense, Loss, Network, cross_entropy


@dataclass(frozen=True)
class Problem:
    """A network, the data that it learns, and how. Each worker takes a slice of every batch.

    By default it is softmax regression on the digits.

    Example:
        problem = Problem(wine, TorchNetwork(model), workers=3, steps=100)

    Attributes:
        slice_size: How many rows of each batch a worker takes.
        loss_function: Returns the mean loss of outputs, and its gradient by the outputs.
    """

    training: Data = field(default_factory=lambda: digits.load()[0])
    network: Network = field(default_factory=lambda: Dense((64, 10)))
    workers: int = 4
    steps: int = 400
    slice_size: int = 48
    learning_rate: float = 0.5
    loss_function: Loss = cross_entropy

    @property
    def first_parameters(self) -> Array:
        """Return zeros for softmax regression, and the first parameters of any other network."""
        parameters = self.network.first_parameters()
        is_one_dense_layer = isinstance(self.network, Dense) and len(self.network.sizes) == 1
        return np.zeros_like(parameters) if is_one_dense_layer else parameters

    @property
    def dense(self) -> Dense:
        """The network, for comparisons that only dense layers allow."""
        assert isinstance(self.network, Dense)
        return self.network

    def batch(self, step: int) -> Data:
        """Return the slices of all workers together."""
        return self.training.batch(step, self.slice_size * self.workers)

    def slice(self, step: int, worker: int) -> Data:
        """Return a worker's slice of the batch of this step."""
        part = slice(self.slice_size * worker, self.slice_size * (worker + 1))
        return self.training.batch(step, self.slice_size * self.workers, part)

    def keys(self, step: int, worker: int) -> Keys:
        """Return which parameters a worker's slice of this batch depends on: here, on all of them."""
        return np.arange(sum(self.network.sizes))

    def gradient(self, parameters: Array, step: int, worker: int) -> Array:
        """Return the gradient of the mean loss on a worker's slice of the batch of this step."""
        return self.loss_and_gradient(parameters, self.slice(step, worker))[1]

    def loss(self, parameters: Array, step: int) -> float:
        """Return the mean loss on the batch of this step."""
        return self.loss_and_gradient(parameters, self.batch(step))[0]

    def loss_and_gradient(self, parameters: Array, data: Data) -> tuple[float, Array]:
        """Return the mean loss on some data, and its gradient by the parameters."""
        return networks.loss_and_gradient(self.network, parameters, data, self.loss_function)

    def accuracy(self, parameters: Array, held_out: Data) -> float:
        """Return the share of rows whose class gets the highest score."""
        return networks.accuracy(self.network, parameters, held_out)

    def train_alone(self, momentum: float = 0.0) -> Array:
        """Return the parameters that one process learns from the whole batches."""
        parameters = self.first_parameters
        for learned in self.steps_alone(momentum):
            parameters = learned
        return parameters

    def steps_alone(self, momentum: float = 0.0) -> Iterator[Array]:
        """Yield the parameters of one process after each step."""
        parameters = self.first_parameters
        velocity = np.zeros_like(parameters)
        for step in range(self.steps):
            _, gradient = self.loss_and_gradient(parameters, self.batch(step))
            velocity = momentum * velocity + gradient
            parameters = parameters - self.learning_rate * velocity
            yield parameters


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
