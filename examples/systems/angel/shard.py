"""A shard: a range of the weights, with a clock for each worker, or for each group of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.angel.algorithm import Keys, Weights

T = TypeVar("T")


class Get(NamedTuple):
    """An answered pull: its clock, the slowest worker's clock at that time, and whether it has waited."""

    clock: int
    slowest: int
    has_waited: bool


class Report(NamedTuple):
    """The report of a shard at the end; `gets` and `staleness` are those of its last attempt."""

    gets: list[Get]
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
        self._gets = list[Get]()
        self._dies_at = dict(enumerate(kills, start=1)).get(lp.current().attempt)

    @lp.idempotent
    def get(self, worker: int, clock: int, keys: Keys) -> Array:
        """Return the weights of these keys, once no worker is more than `staleness` clocks behind."""
        with self._state.changed:
            has_waited = self._state.wait(clock, self._staleness)
            self._gets.append(Get(clock, int(self._state.applied.min()), has_waited))
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
        with self._state.changed:
            return self._state.value.values.copy()

    @lp.idempotent
    def report(self) -> Report:
        with self._state.changed:
            return Report(self._gets, self._state.staleness, lp.current().attempt)
