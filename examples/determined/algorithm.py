"""Searchers: which hyperparameters are tried, and for how many epochs.

A searcher is told how trials do, in some order, and knows nothing else: who replays the reports has it again.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Hyperparameters = dict[str, float]


class Start(NamedTuple):
    """A new trial; trials of a search are numbered in the order of their starts.

    Attributes:
        epochs: How many it trains before it reports, those of its parent included.
        parent: The trial from whose checkpoint it begins.
    """

    hyperparameters: Hyperparameters
    epochs: int
    parent: int | None = None


class Searcher(ABC):
    """Decides what is trained."""

    @abstractmethod
    def begin(self) -> list[Start]:
        """Return the first trials."""

    @abstractmethod
    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        """Return how many epochs the trial trains in all before it reports again, or 0; and new trials."""


class Random(Searcher):
    """Trains each of some points, drawn at random, to the end."""

    def __init__(self, trials: int, epochs: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        drawn = 10 ** rng.uniform([-3, -6], [-0.3, -2], (trials, 2))
        self._points = [{"rate": rate, "decay": decay} for rate, decay in drawn.tolist()]
        self._epochs = epochs

    def begin(self) -> list[Start]:
        return [Start(point, self._epochs) for point in self._points]

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        return 0, []


class Grid(Random):
    """Trains every combination of some values to the end."""

    def __init__(self, values: dict[str, Sequence[float]], epochs: int) -> None:
        self._points = [
            dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())
        ]
        self._epochs = epochs


class Asha(Random):
    """At each rung goes on with a trial if it is among the best 1/eta of those that have come so far."""

    def __init__(self, trials: int, rungs: Sequence[int], eta: int = 3, seed: int = 0) -> None:
        super().__init__(trials, rungs[0], seed)
        self._next, self._eta = dict(itertools.pairwise(rungs)), eta
        self._losses: dict[int, list[float]] = {rung: [] for rung in rungs}

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        losses = self._losses[epochs]
        losses.append(loss)
        is_good = sorted(losses).index(loss) < max(len(losses) // self._eta, 1)
        return self._next.get(epochs, 0) if is_good else 0, []


class Pbt(Random):
    """After each round the worse members go on from checkpoints of the better, with their values changed."""

    def __init__(self, members: int, rounds: int, epochs: int, seed: int = 0) -> None:
        super().__init__(members, epochs, seed)
        self._end, self._seed, self._losses = rounds * epochs, seed, dict[int, float]()

    def report(self, trial: int, epochs: int, loss: float) -> tuple[int, list[Start]]:
        # A round's trials end with it, and the next round's are new ones: so none ever waits.
        self._losses[trial] = loss
        n = len(self._points)
        if len(self._losses) < n or epochs == self._end:
            return 0, []
        by_loss = sorted(self._losses, key=lambda member: (self._losses[member], member))
        rng = np.random.default_rng([self._seed, epochs])
        parents = by_loss[: n - n // 2] + by_loss[: n // 2]
        values = {i: self._points[i % n] for i in by_loss}
        changed = [{k: v * rng.choice([0.8, 1.2]) for k, v in values[i].items()} for i in by_loss]
        self._points = [values[i] for i in by_loss[: n - n // 2]] + changed[: n // 2]
        self._losses.clear()
        return 0, [
            Start(point, epochs + self._epochs, i)
            for point, i in zip(self._points, parents, strict=True)
        ]
