"""Angel without launchpad: the tasks of workers, weights in parts, and functions of the weights.

A worker pulls only the weights of the keys that occur in its batch, and pushes the gradient of just these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from examples._shared.data import Array

Keys = npt.NDArray[np.integer[Any]]
Sparse = tuple[Keys, Array]  # sorted keys, and a value for each
PsFunc = tuple[Callable[[Array], Any], Callable[[Sequence[Any]], Any]]
"""A function of the weights. A shard computes the first one of its part; the second one joins the results."""


@dataclass(frozen=True)
class Task(ABC):
    """A worker's data and its gradients, in clocks, which others call iterations.

    Attributes:
        size: How many weights there are.
        rate: How far the weights follow the mean of the workers' gradients.
        unit_s: How long a worker sleeps at each clock, to stand for its work. A slow one sleeps longer.
    """

    unit_s: ClassVar[float] = 0.0

    size: int
    rate: float
    clocks: int

    @abstractmethod
    def keys(self, clock: int) -> Keys:
        """Return the keys that occur at this clock, sorted."""

    @abstractmethod
    def gradient(self, weights: Array, clock: int) -> Array:
        """Return the gradient of the mean loss by the weights of `keys(clock)`."""

    def first_weights(self) -> Array:
        """Return the weights to begin with. Only those of the first worker are asked for."""
        return np.zeros(self.size)

    def is_slow(self, clock: int) -> bool:
        """True if this worker is a straggler at this clock."""
        return False


class Weights:
    """A part of the weights, and the workers' gradients that wait to be applied.

    Only the weights that are not zero are pickled, since a shard saves them at every push.
    """

    def __init__(self, values: Array) -> None:
        self.values = values
        self.waiting: dict[int, Sparse] = {}

    def apply(self, rate: float) -> None:
        """Apply the waiting gradients in the workers' order, so that the bits don't depend on the race."""
        for worker in sorted(self.waiting):
            keys, gradient = self.waiting.pop(worker)
            self.values[keys] -= rate * gradient

    def __getstate__(self) -> tuple[Any, ...]:
        used = np.flatnonzero(self.values).astype(np.int32)
        return len(self.values), used, self.values[used], self.waiting

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        size, used, values, self.waiting = state
        self.values = np.zeros(size)
        self.values[used] = values


def add(parts: Sequence[Sparse]) -> Sparse:
    """Return the sum of sparse vectors."""
    keys, at = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    totals = np.zeros(len(keys))
    np.add.at(totals, at, np.concatenate([values for _, values in parts]))
    return keys, totals
