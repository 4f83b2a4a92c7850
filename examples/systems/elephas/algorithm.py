"""The training of a model on partitions: the work of a worker between two exchanges with the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from examples._shared import networks
from examples._shared.data import Array, Data


@dataclass(frozen=True)
class Model:
    """A network and its training. Keras calls this a compiled model.

    Attributes:
        parameters: The parameters that training begins with.
        seed: The seed of the order in which epochs go through the data.
    """

    widths: tuple[int, ...]
    parameters: Array
    learning_rate: float
    seed: int = 0


class Partition(Protocol):
    """The part of the data that one worker has."""

    @property
    def n_batches(self) -> int:
        """Return the number of batches in an epoch. All partitions have the same number."""

    def gradient(self, model: Model, parameters: Array, step: int) -> Array:
        """Return the gradient on the batch of this step. Steps are counted through all epochs."""


@dataclass(frozen=True)
class Rows:
    """A partition of digits. Each epoch goes through it in another order."""

    digits: Data
    n_batches: int

    def gradient(self, model: Model, parameters: Array, step: int) -> Array:
        epoch, batch = divmod(step, self.n_batches)
        order = np.random.default_rng([model.seed, epoch]).permutation(len(self.digits))
        rows = np.array_split(order, self.n_batches)[batch]
        return networks.gradient(model.widths, parameters, self.digits[rows])


def in_batches(partitions: Sequence[Data], batch_size: int) -> list[Rows]:
    """Cut all partitions into the same number of batches, the largest of which have this size."""
    sizes = [len(digits) for digits in partitions]
    n_batches = -(-max(sizes) // batch_size)
    if min(sizes) < n_batches:
        raise ValueError(
            f"partition {sizes.index(min(sizes))} has {min(sizes)} rows: too few for the {n_batches} batches"
            f" of an epoch; make the partitions more alike (they have {sizes} rows) or the batches larger"
        )
    return [Rows(digits, n_batches) for digits in partitions]


def rounds(frequency: str, steps: int, n_batches: int) -> list[range]:
    """Return the steps that a worker makes between one exchange with the driver and the next."""
    size = {"epoch": n_batches, "batch": 1}[frequency]
    return [range(first, min(first + size, steps)) for first in range(0, steps, size)]


def train(model: Model, partition: Partition, parameters: Array, steps: range) -> Array:
    """Return the parameters after these steps of gradient descent."""
    for step in steps:
        gradient = partition.gradient(model, parameters, step)
        parameters = parameters - model.learning_rate * gradient
    return parameters


class Weights(NamedTuple):
    """Parameters, and how often each update is in them, by worker and number of the update."""

    parameters: Array
    counts: npt.NDArray[np.int64]

    def check(self, delta: Array) -> None:
        """Raise ValueError if the update cannot be added."""
        if delta.shape != self.parameters.shape:
            has = delta.shape
            needs = self.parameters.shape
            raise ValueError(f"an update has the shape of the parameters, {needs}, and not {has}")

    def plus(self, delta: Array, worker: int, number: int) -> Weights:
        """Return weights that include this update."""
        self.check(delta)
        counts = self.counts.copy()
        counts[worker, number] += 1
        return Weights(self.parameters + delta, counts)
