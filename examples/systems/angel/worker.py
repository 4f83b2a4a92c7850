"""A worker: it pulls weights, computes the gradient of its batch, and pushes it, alone or in a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples.systems.angel.algorithm import PSFUNCS, Keys, Sparse, Task, Weights, add
from examples.systems.angel.shard import Report, Shard

SLOW = 5  # how many times longer a slow worker computes


@dataclass(frozen=True)
class Outcome:
    """The state at the end: the weights, the results of psFuncs, and the reports of shards."""

    weights: Weights
    psfuncs: dict[str, float]
    shards: list[Report]


@dataclass(frozen=True)
class Trained:
    """The result of a worker; `outcome` is that of the first worker only."""

    trace: list[Event]
    n_pulled: int
    seconds: float
    outcome: Outcome | None


class Worker:
    """A worker of a group. It computes gradients; the first worker of the group pushes their sum."""

    def __init__(
        self,
        everyone: lp.Collective,
        task: Task,
        group_size: int,
        shards: Sequence[lp.CourierClient[Shard]],
    ) -> None:
        self._everyone = everyone
        self._task = task
        self._shards = shards
        self._index = everyone.rank // group_size
        self._link = everyone.size + everyone.rank
        self._group = everyone.split(self._index)
        partition = lp.RangePartition(task.size)
        self._model = lp.sharded(shards, partition)
        # A push has a weight of each shard, so that every shard is told of every clock, whichever keys a
        # batch has.
        firsts = np.array(
            [partition.bounds(i, len(shards))[0] for i in range(len(shards))], np.int32
        )
        self._nothing: Sparse = firsts, np.zeros(len(firsts))
        self._trace: list[Event] = []
        self._n_pulled = 0

    def run(self) -> Trained:
        """Train. The first worker returns the state of the shards, too."""
        began = time.monotonic()
        for clock, (keys, weights) in enumerate(self._pull()):
            gradient = self._task.gradient(weights, clock)
            is_slow = self._task.is_slow(clock)
            time.sleep(self._task.unit_s * (SLOW if is_slow else 1))
            self._trace.append(Event("slow" if is_slow else "quick", clock))
            self._push(clock, (keys, gradient))
        seconds = time.monotonic() - began
        self._everyone.barrier("trained")
        outcome = look(self._shards) if self._everyone.rank == 0 else None
        return Trained(self._trace, self._n_pulled, seconds, outcome)

    def _pull(self) -> Iterator[Sparse]:
        """Yield the keys and weights of each clock, after asking for those of the next one."""
        coming = self._ask(0)
        for clock in range(self._task.clocks):
            keys = coming[0]
            weights = coming[1].result()
            self._trace.append(Event("pull", clock, received_from=self._link))
            if clock + 1 < self._task.clocks:
                coming = self._ask(clock + 1)
            yield keys, weights

    def _ask(self, clock: int) -> tuple[Keys, Future[Array]]:
        keys = self._task.keys(clock)
        self._trace.append(Event("ask", clock))
        self._n_pulled += len(keys)
        return keys, lp.submit(self._model.get, self._index, clock, lp.keys(keys))

    def _push(self, clock: int, own: Sparse) -> None:
        parts = self._group.all_gather_object(own)
        if self._group.rank == 0:
            keys, total = add([*parts, self._nothing])
            self._model.push(self._index, clock, lp.keys(keys), total)
        self._trace.append(Event("push", clock * self._everyone.size + self._everyone.rank))


def look(shards: Sequence[lp.CourierClient[Shard]]) -> Outcome:
    """Ask the shards for their weights, psFuncs and reports."""
    everyone = lp.broadcast(shards)
    psfuncs = {
        name: joined(everyone.compute(of_part)) for name, (of_part, joined) in PSFUNCS.items()
    }
    values = np.concatenate(everyone.weights())
    weights = Weights(len(values))
    weights.values = values
    return Outcome(weights, psfuncs, everyone.report())
