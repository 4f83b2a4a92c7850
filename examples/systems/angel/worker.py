"""A worker: pulls weights, computes the gradient of its batch, pushes it; alone, or as one of a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.digits import Array
from examples._shared.logical_time import Event
from examples.systems.angel.algorithm import PSFUNCS, Keys, Sparse, Task, Weights, add
from examples.systems.angel.shard import Report, Shard

SLOW = 5  # times as long as another worker computes one that is slow


@dataclass(frozen=True)
class Outcome:
    """What the first worker finds at the end: the weights, what psFuncs made of them, and of each shard."""

    weights: Weights
    psfuncs: dict[str, float]
    shards: list[Report]


@dataclass(frozen=True)
class Trained:
    """What a worker returns: what it did, in which order, how many weights it pulled, how long it took."""

    trace: list[Event]
    n_pulled: int
    seconds: float
    outcome: Outcome | None


class Worker:
    """Computes gradients with the others of its group, and pushes their sum if it is the first of them."""

    def __init__(
        self,
        everyone: lp.Collective,
        task: Task,
        group_size: int,
        shards: Sequence[lp.CourierClient[Shard]],
    ) -> None:
        self._everyone, self._task, self._shards = everyone, task, shards
        self._index, self._link = everyone.rank // group_size, everyone.size + everyone.rank
        self._group = everyone.split(self._index)
        partition = lp.RangePartition(task.size)
        self._model = lp.sharded(shards, partition)
        # A weight of each shard: so every shard is told of every clock, whatever occurs in a batch.
        firsts = np.array(
            [partition.bounds(i, len(shards))[0] for i in range(len(shards))], np.int32
        )
        self._nothing: Sparse = firsts, np.zeros(len(firsts))
        self._trace: list[Event] = []
        self._n_pulled = 0

    def run(self) -> Trained:
        """Train, and see what has come of it."""
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
        """Yield keys and weights of each clock, for which those of the next have been asked."""
        coming = self._ask(0)
        for clock in range(self._task.clocks):
            keys, weights = coming[0], coming[1].result()
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
    """Return what the shards have come to."""
    everyone = lp.broadcast(shards)
    found = {name: joined(everyone.compute(of_part)) for name, (of_part, joined) in PSFUNCS.items()}
    whole = np.concatenate(everyone.weights())
    weights = Weights(len(whole))
    weights.values = whole
    return Outcome(weights, found, everyone.report())
