"""A shard: a range of the weights, with a clock for each worker, or for each group of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

import launchpad as lp
from examples._shared.data import Array, Keys
from examples._shared.shard import ShardState
from examples.systems.angel.algorithm import Weights

T = TypeVar("T")


class Report(NamedTuple):
    """The report of a shard at the end, on its last attempt.

    Attributes:
        gaps: By how many clocks the slowest worker was behind, for each pull at the time of the answer.
        n_waits: How many of the pulls waited.
        staleness: The most updates of others between a worker's pull and its push.
    """

    gaps: list[int]
    n_waits: int
    staleness: int
    attempt: int


class Shard:
    """A range of the weights. Pulls may wait for other workers; pushes don't.

    Args:
        workers: How many workers push.
        rate: How far the weights follow a gradient.
        staleness: How many clocks the slowest worker may be behind one that pulls. 0 is BSP, in which no
            worker sees gradients of a clock before all have pushed theirs. Infinite is ASP, and the rest SSP.
        kills: The clocks at which the shard kills itself: in its first attempt, in its second, …
    """

    def __init__(
        self,
        weights: Weights,
        workers: int,
        rate: float,
        staleness: float,
        kills: Sequence[int] = (),
    ) -> None:
        self._state = ShardState(weights, workers)
        self._rate = rate
        self._staleness = staleness
        self._gaps: list[int] = []
        self._n_waits = 0
        self._dies_at = dict(enumerate(kills, start=1)).get(lp.current().attempt)

    @lp.idempotent
    def get(self, worker: int, clock: int, keys: Keys) -> Array:
        """Return the weights of these keys, once no worker is more than `staleness` clocks behind."""
        with self._state.changed:
            has_waited = self._state.wait(clock, self._staleness)
            self._n_waits += has_waited
            self._gaps.append(clock - int(self._state.applied.min()))
            self._state.mark_seen(worker, clock)
            return self._state.value.values[keys]

    @lp.idempotent
    def push(self, worker: int, clock: int, keys: Keys, gradient: Array) -> None:
        """Take a gradient, and move this worker's clock on."""
        dies = worker == 0 and clock == self._dies_at
        if dies and lp.current().attempt % 2:
            lp.testing.crash()  # before it does anything
        with self._state.update(worker, clock) as is_new:
            if is_new:
                weights = self._state.value
                weights.waiting[worker] = keys, gradient
                if self._staleness > 0 or len(weights.waiting) == len(self._state.applied):
                    weights.apply(self._rate)
        if dies:
            lp.testing.crash()  # everything is done and saved, and nobody knows

    @lp.idempotent
    def compute(self, psfunc: Callable[[Array], T]) -> T:
        """Call a function with this shard's weights. The function travels, and the weights stay here."""
        with self._state.changed:
            return psfunc(self._state.value.values)

    @lp.idempotent
    def weights(self) -> Array:
        """Return all weights of this shard."""
        return self.compute(np.copy)

    @lp.idempotent
    def report(self) -> Report:
        with self._state.changed:
            return Report(self._gaps, self._n_waits, self._state.staleness, lp.current().attempt)
