"""Angel without launchpad: weights in parts, sparse gradients, and functions of the weights.

A worker pulls only the weights of the keys that occur in its batch, and pushes the gradient of just these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from examples._shared.data import Array, Keys

Sparse = tuple[Keys, Array]  # sorted keys, and a value for each
PsFunc = tuple[Callable[[Array], Any], Callable[[Sequence[Any]], Any]]
"""A function of the weights. A shard computes the first one of its part; the second one joins the results."""


class Weights:
    """A part of the weights, and the workers' gradients that wait to be applied."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.waiting: dict[int, Sparse] = {}

    def apply(self, rate: float) -> None:
        """Apply the waiting gradients in the workers' order, so that the bits don't depend on the race."""
        for worker in sorted(self.waiting):
            keys, gradient = self.waiting.pop(worker)
            self.values[keys] -= rate * gradient


def add(parts: Sequence[Sparse]) -> Sparse:
    """Return the sum of sparse vectors."""
    keys, at = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    totals = np.zeros(len(keys))
    np.add.at(totals, at, np.concatenate([values for _, values in parts]))
    return keys, totals
