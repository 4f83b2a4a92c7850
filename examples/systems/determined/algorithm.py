"""Searchers: they decide which hyperparameters to try, and for how many epochs.

A searcher knows only the losses of trials, in some order. Told the same again, it decides the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Hyperparameters = dict[str, float]


class Start(NamedTuple):
    """A new trial. The trials of a searcher are numbered in the order of their starts.

    Attributes:
        epochs: How many epochs it trains before it reports, including those of its parent.
        parent: The trial from whose checkpoint it begins.
    """

    hyperparameters: Hyperparameters
    epochs: int
    parent: int | None = None


class Searcher:
    """A searcher that trains each of some points to the end."""

    def __init__(self, points: list[Hyperparameters], epochs: int) -> None:
        self._points = points
        self._epochs = epochs

    def begin(self) -> list[Start]:
        """Return the first trials."""
        return [Start(point, self._epochs) for point in self._points]

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        """Return the epoch up to which the trial trains now, 0 if it is closed, and new trials."""
        return 0, []


class Grid(Searcher):
    """A searcher that trains every combination of some values."""

    def __init__(self, values: dict[str, Sequence[float]], epochs: int) -> None:
        points = itertools.product(*values.values())
        super().__init__([dict(zip(values, point, strict=True)) for point in points], epochs)


class Random(Searcher):
    """A searcher that trains points drawn at random."""

    def __init__(self, trials: int, epochs: int, seed: int = 0) -> None:
        drawn = 10 ** np.random.default_rng(seed).uniform([-3, -6], [-0.3, -2], (trials, 2))
        super().__init__([{"rate": rate, "decay": decay} for rate, decay in drawn.tolist()], epochs)


class Asha(Random):
    """ASHA. At each rung a trial goes on if it is among the best 1/eta of those that have come so far."""

    def __init__(self, trials: int, rungs: Sequence[int], eta: int = 3, seed: int = 0) -> None:
        super().__init__(trials, rungs[0], seed)
        self._next = dict(itertools.pairwise(rungs))
        self._eta = eta
        self._losses: dict[int, list[float]] = {rung: [] for rung in rungs}

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        losses = self._losses[epochs]
        losses.append(loss)
        is_good = sorted(losses).index(loss) < max(len(losses) // self._eta, 1)
        return self._next.get(epochs, 0) if is_good else 0, []


class Pbt(Random):
    """PBT. After a round, the worse half starts again from checkpoints of the better, with changed values.

    Each round has trials of its own, which end with it. So no trial holds slots while it waits for others.
    """

    def __init__(self, members: int, rounds: int, epochs: int, seed: int = 0) -> None:
        super().__init__(members, epochs, seed)
        self._end = rounds * epochs
        self._seed = seed
        self._losses = dict[int, float]()

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        self._losses[trial] = loss
        n = len(self._points)
        if len(self._losses) < n or epochs == self._end:
            return 0, []
        rng = np.random.default_rng([self._seed, epochs])
        by_loss = sorted(self._losses, key=lambda trial: (self._losses[trial], trial))
        parents = by_loss[: n - n // 2] + by_loss[: n // 2]
        points = [self._points[trial % n] for trial in parents]
        for i in range(n - n // 2, n):
            points[i] = {name: v * float(rng.choice([0.8, 1.25])) for name, v in points[i].items()}
        self._points = points
        self._losses = {}
        end = epochs + self._epochs
        return 0, [Start(point, end, parent) for point, parent in zip(points, parents, strict=True)]
