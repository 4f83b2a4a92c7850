"""Training a model on partitions: what a worker does between two exchanges with the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from examples._shared import networks
from examples._shared.digits import Array, Digits


@dataclass(frozen=True)
class Model:
    """A network and how it is trained: what Keras calls a compiled model.

    Attributes:
        parameters: Those that training begins with.
        seed: Of the order in which epochs go through the data.
    """

    widths: tuple[int, ...]
    parameters: Array
    learning_rate: float
    seed: int = 0


class Partition(Protocol):
    """The part of the data that one worker has."""

    @property
    def n_batches(self) -> int:
        """How many there are in an epoch: as many as in every other partition."""

    def gradient(self, model: Model, parameters: Array, step: int) -> Array:
        """Return the gradient on the batch of this step, of all epochs one after the other."""


@dataclass(frozen=True)
class Rows:
    """A partition of digits, which each epoch goes through in another order."""

    digits: Digits
    n_batches: int

    def gradient(self, model: Model, parameters: Array, step: int) -> Array:
        epoch, batch = divmod(step, self.n_batches)
        order = np.random.default_rng([model.seed, epoch]).permutation(len(self.digits))
        rows = np.array_split(order, self.n_batches)[batch]
        return networks.gradient(model.widths, parameters, self.digits[rows])


def in_batches(partitions: Sequence[Digits], batch_size: int) -> list[Rows]:
    """Cut them into the same number of batches, so that the largest are of this size."""
    sizes = [len(digits) for digits in partitions]
    n_batches = -(-max(sizes) // batch_size)
    if min(sizes) < n_batches:
        raise ValueError(
            f"partition {sizes.index(min(sizes))} has {min(sizes)} rows: too few for the {n_batches} batches"
            f" of an epoch; make the partitions more alike (they have {sizes} rows) or the batches larger"
        )
    return [Rows(digits, n_batches) for digits in partitions]


def rounds(frequency: str, steps: int, n_batches: int) -> list[range]:
    """Return which steps a worker makes between one exchange with the driver and the next."""
    size = {"epoch": n_batches, "batch": 1}[frequency]
    return [range(first, min(first + size, steps)) for first in range(0, steps, size)]


def train(model: Model, partition: Partition, parameters: Array, steps: range) -> Array:
    """Return what gradient descent makes of the parameters in these steps."""
    for step in steps:
        gradient = partition.gradient(model, parameters, step)
        parameters = parameters - model.learning_rate * gradient
    return parameters


class Weights(NamedTuple):
    """Parameters, and how often each update is in them: by worker, and by its number."""

    parameters: Array
    counts: npt.NDArray[np.int64]

    def check(self, delta: Array) -> None:
        """ValueError if it cannot be added."""
        if delta.shape != self.parameters.shape:
            has, needs = delta.shape, self.parameters.shape
            raise ValueError(f"an update has the shape of the parameters, {needs}, and not {has}")

    def plus(self, delta: Array, worker: int, number: int) -> Weights:
        """Return weights that have this update, too."""
        self.check(delta)
        counts = self.counts.copy()
        counts[worker, number] += 1
        return Weights(self.parameters + delta, counts)
