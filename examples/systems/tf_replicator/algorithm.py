"""Replicator: it runs a user's input_fn and step_fn. This file doesn't know launchpad.

input_fn ──▶ step_fn: layers ⇄ all_sum ⇄ layers of the other replicas
                      gradient ──▶ wrapped optimizer: mean over all replicas ──▶ variables
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from examples._shared.data import Array

T = TypeVar("T")
Optimizer = Callable[[Array, Array], None]  # changes a variable, by its gradient


class Model(Protocol):
    """The user's code: a share of each batch, a step of training, and the arrays that it changes."""

    variables: list[Array]

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[Any]: ...
    def step_fn(self, inputs: Any) -> Any: ...


class Trained(NamedTuple):
    """The results of step_fn, by step and replica, and the variables at the end."""

    outputs: list[list[Any]]
    variables: list[Array]


class Replicator:
    """A replicator for one replica. Those for several replicas override its communication."""

    replica_id = 0
    num_replicas = 1

    def all_sum(self, x: Array) -> Array:
        return x

    def all_gather(self, x: T) -> list[T]:
        return [x]

    def broadcast(self, x: T) -> T:
        return x

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer that takes the mean of all replicas' gradients."""
        return lambda x, gradient: optimizer(x, self.all_sum(gradient) / self.num_replicas)

    def train(self, model: Model, steps: int) -> Trained:
        """Train from the last checkpoint on. All replicas take the checkpoint of the first one."""
        saved = self.broadcast(self.load(default=Trained([], model.variables)))
        for variable, value in zip(model.variables, saved.variables, strict=True):
            variable[...] = value
        trained = Trained(saved.outputs, model.variables)
        inputs = model.input_fn(self.replica_id, self.num_replicas)
        for of_step in islice(inputs, len(trained.outputs), steps):
            trained.outputs.append(self.all_gather(model.step_fn(of_step)))
            self.save(trained)
        return trained

    def load(self, default: Trained) -> Trained:
        return default

    def save(self, trained: Trained) -> None:
        """Make a checkpoint, if it is time for one."""


class BatchNorm:
    """A layer that gives each feature mean 0 and variance 1 over the batch of all replicas."""

    def __init__(self, replicator: Replicator) -> None:
        self._all_sum = replicator.all_sum

    def forward(self, x: Array) -> Array:
        sums = self._all_sum(np.stack([np.ones_like(x), x, x * x]).sum(axis=1))
        self._rows, total, squares = np.split(sums, 3)
        mean = total / self._rows
        self._deviation = np.sqrt(squares / self._rows - mean**2 + 1e-5)
        self._normal = (x - mean) / self._deviation
        return self._normal

    def backward(self, gradient: Array) -> Array:
        """Return the gradient by x. Each sum went to all replicas, so all their gradients come back."""
        sums = self._all_sum(np.stack([gradient, gradient * self._normal]).sum(axis=1))
        shift, stretch = np.split(sums / self._rows, 2)
        return (gradient - shift - self._normal * stretch) / self._deviation
