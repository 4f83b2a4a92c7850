"""Logistic regression on sparse rows: which of a million keys each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from examples._shared.data import Array
from examples.systems.angel.algorithm import Keys, Task


@dataclass(frozen=True)
class Rows:
    """Examples, each with keys and a label, 0 or 1. The keys of all examples are in one array."""

    keys: Keys
    lengths: Keys
    labels: Array

    def __getitem__(self, chosen: Keys | slice) -> Rows:
        ends = np.cumsum(self.lengths)[chosen]
        parts = [self.keys[e - n : e] for e, n in zip(ends, self.lengths[chosen], strict=True)]
        return Rows(np.concatenate(parts), self.lengths[chosen], self.labels[chosen])

    def scores(self, weights: Array, at: Keys) -> Array:
        """Return the scores. `at` has the position of each key's weight. Long rows don't weigh more."""
        rows = np.repeat(np.arange(len(self.labels)), self.lengths)
        return np.bincount(rows, weights[at], len(self.labels)) / np.sqrt(self.lengths)


@dataclass(frozen=True)
class LogisticRegression(Task):
    """A worker's share of the rows, from which it draws a batch at each clock."""

    rows: Rows
    worker: int
    batch_size: int = 64

    def batch(self, clock: int) -> Rows:
        rng = np.random.default_rng([self.worker, clock])
        return self.rows[rng.choice(len(self.rows.labels), self.batch_size)]

    def keys(self, clock: int) -> Keys:
        return np.unique(self.batch(clock).keys)

    def gradient(self, weights: Array, clock: int) -> Array:
        batch = self.batch(clock)
        at = np.searchsorted(self.keys(clock), batch.keys)
        errors = 1 / (1 + np.exp(-batch.scores(weights, at))) - batch.labels
        by_row = errors / np.sqrt(batch.lengths) / self.batch_size
        gradient = np.zeros_like(weights)
        np.add.at(gradient, at, np.repeat(by_row, batch.lengths))
        return gradient

    def is_slow(self, clock: int) -> bool:
        """True with a chance of a quarter, drawn for this worker and clock."""
        return bool(np.random.default_rng([self.worker, clock, 1]).random() < 0.25)
