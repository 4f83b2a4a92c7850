"""What Replicator makes of a user's input_fn and step_fn: this file knows no launchpad.

input_fn ──▶ step_fn: layers ⇄ all_sum ⇄ layers of the other replicas
                      gradient ──▶ wrapped optimizer: mean over all replicas ──▶ variables
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np

from examples._shared.digits import Array

T = TypeVar("T")
Optimizer = Callable[[Array, Array], None]  # changes a variable by its gradient


class Model(Protocol):
    """What a user writes; `variables` are the arrays that training changes."""

    variables: list[Array]

    def input_fn(self, replica_id: int, num_replicas: int) -> Iterator[Any]:
        """Return this replica's share of each batch."""

    def step_fn(self, inputs: Any) -> Any:
        """Do a step of training, as on a single device."""


class Replicator:
    """Runs a model on one replica; those for several override the operations between replicas."""

    replica_id, num_replicas = 0, 1

    def all_sum(self, x: Array) -> Array:
        return x

    def all_gather(self, x: T) -> list[T]:
        return [x]

    def broadcast(self, x: T) -> T:
        return x

    def map_gather(self, function: Callable[[Any], T], x: Any) -> list[T]:
        return self.all_gather(function(x))

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer that takes the mean of all replicas' gradients."""
        return lambda variable, gradient: optimizer(
            variable, self.all_sum(gradient) / self.num_replicas
        )

    def run(self, model: Model, steps: int) -> list[list[Any]]:
        """Return what step_fn has returned, by step and replica; go on from the last checkpoint."""
        name = type(model).__name__
        outputs, variables = self.broadcast(self.load(name, ([], model.variables)))
        for variable, value in zip(model.variables, variables, strict=True):
            variable[...] = value
        inputs = model.input_fn(self.replica_id, self.num_replicas)
        for of_step in islice(inputs, len(outputs), steps):
            outputs.append(self.map_gather(model.step_fn, of_step))
            self.save(name, (outputs, model.variables))
        return outputs

    def load(self, name: str, default: T) -> T:
        """Return what was saved under this name; one replica alone has no checkpoints."""
        return default

    def save(self, name: str, state: Any) -> None:
        """Keep the state, for the case that a replica is lost."""


class BatchNorm:
    """A layer that gives each feature mean 0 and variance 1 over the batch of all replicas."""

    def __init__(self, replicator: Replicator) -> None:
        self._all_sum = replicator.all_sum

    def forward(self, x: Array) -> Array:
        sums = self._all_sum(np.stack([np.ones_like(x), x, x * x]).sum(axis=1))
        self._rows, mean, square = sums[0], sums[1] / sums[0], sums[2] / sums[0]
        self._deviation = np.sqrt(square - mean**2 + 1e-5)
        self._normal = (x - mean) / self._deviation
        return self._normal

    def backward(self, gradient: Array) -> Array:
        """Return the gradient by x: a sum went to all replicas, so all their gradients come back."""
        sums = self._all_sum(np.stack([gradient, gradient * self._normal]).sum(axis=1))
        shift, stretch = sums / self._rows
        return (gradient - shift - self._normal * stretch) / self._deviation
