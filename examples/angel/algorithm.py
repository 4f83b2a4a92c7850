"""What Angel computes, without launchpad: sparse logistic regression, and weights that are cut into parts.

A worker pulls only the weights of the keys in its batch, and pushes the gradient of just these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from examples._shared.digits import Array

Keys = npt.NDArray[np.integer[Any]]
Sparse = tuple[Keys, Array]  # sorted keys, and a value for each

PSFUNCS: dict[str, tuple[Callable[[Array], float], Callable[[Sequence[float]], float]]] = {
    "dot(w, w)": (lambda w: float(w @ w), sum),
    "max(w)": (lambda w: float(w.max()), max),
    "nonzeros": (lambda w: float(np.count_nonzero(w)), sum),
}
"""Functions of the weights: what is computed of each part, where it is, and of what comes of the parts."""


class Task(Protocol):
    """What one worker learns from, in clocks, which others call iterations."""

    size: int  # how many weights there are; they begin as zeros
    rate: float  # how far the mean of the workers' gradients is followed
    clocks: int
    unit_s: float  # how long a worker sleeps at each clock, as if it computed; a straggler several times

    def keys(self, clock: int) -> Keys: ...
    def gradient(self, weights: Array, clock: int) -> Array: ...
    def is_slow(self, clock: int) -> bool: ...


class Weights:
    """A part of the weights, and the workers' increments that wait to be applied.

    Pickled are only the weights that are not zero, since a shard saves them at every push.
    """

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size)
        self.waiting: dict[int, Sparse] = {}

    def apply(self, rate: float) -> None:
        """Apply what waits, in the workers' order: the bits do not depend on which came first."""
        for worker in sorted(self.waiting):
            keys, gradient = self.waiting.pop(worker)
            self.values[keys] -= rate * gradient

    def __getstate__(self) -> tuple[Any, ...]:
        used = np.flatnonzero(self.values)
        return len(self.values), used, self.values[used], self.waiting

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        size, used, values, self.waiting = state
        self.values = np.zeros(size)
        self.values[used] = values


@dataclass(frozen=True)
class Rows:
    """Examples: the keys that each has, those of one after those of the other, and a label, 0 or 1."""

    keys: Keys
    lengths: Keys
    labels: Array

    def __getitem__(self, chosen: Keys | slice) -> Rows:
        ends = np.cumsum(self.lengths)[chosen]
        parts = [self.keys[e - n : e] for e, n in zip(ends, self.lengths[chosen], strict=True)]
        return Rows(np.concatenate(parts), self.lengths[chosen], self.labels[chosen])

    def scores(self, weights: Array, at: Keys) -> Array:
        """Return the scores; `at` says where in `weights` that of each key is. Long rows weigh no more."""
        rows = np.repeat(np.arange(len(self.labels)), self.lengths)
        return np.bincount(rows, weights[at], len(self.labels)) / np.sqrt(self.lengths)


@dataclass(frozen=True)
class LogisticRegression:
    """A worker's share of the rows, from which it draws a batch at each clock."""

    rows: Rows
    worker: int
    size: int
    clocks: int
    rate: float = 100.0
    batch_size: int = 64
    unit_s: float = 0.002

    def batch(self, clock: int) -> Rows:
        rng = np.random.default_rng([self.worker, clock])
        return self.rows[rng.choice(len(self.rows.labels), self.batch_size)]

    def keys(self, clock: int) -> Keys:
        """Return the keys that occur in the batch, sorted."""
        return np.unique(self.batch(clock).keys)

    def gradient(self, weights: Array, clock: int) -> Array:
        """Return the gradient of the mean loss by the weights of `keys(clock)`."""
        batch = self.batch(clock)
        at = np.searchsorted(self.keys(clock), batch.keys)
        errors = 1 / (1 + np.exp(-batch.scores(weights, at))) - batch.labels
        by_row = errors / np.sqrt(batch.lengths) / self.batch_size
        return np.bincount(at, np.repeat(by_row, batch.lengths), len(weights))

    def is_slow(self, clock: int) -> bool:
        """Whether the worker is a straggler at this clock: now and then every one is."""
        return bool(np.random.default_rng([self.worker, clock, 1]).random() < 0.25)


def add(parts: Sequence[Sparse]) -> Sparse:
    """Return the sum of sparse vectors."""
    keys, at = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    return keys, np.bincount(at, np.concatenate([values for _, values in parts]))
