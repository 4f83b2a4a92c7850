"""A worker: it pulls weights, computes the gradient of its batch, and pushes it, alone or in a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples.systems.angel.algorithm import Keys, PsFunc, Sparse, Task, add
from examples.systems.angel.shard import Report, Shard

SLOW = 5  # how many times longer a slow worker computes


class Trained(NamedTuple):
    """The result of a worker. The first one returns the state at the end, too: what the shards say."""

    trace: list[Event]
    n_pulled: int
    weights: Array
    psfuncs: dict[str, Any]
    shards: list[Report]


class Worker:
    """A worker of a group. It computes gradients; the first worker of the group pushes their sum."""

    def __init__(
        self,
        everyone: lp.Collective,
        task: Task,
        group_size: int,
        shards: Sequence[lp.CourierClient[Shard]],
        psfuncs: Mapping[str, PsFunc],
    ) -> None:
        self._everyone = everyone
        self._task = task
        self._shards = shards
        self._psfuncs = psfuncs
        self._index = everyone.rank // group_size
        self._group = everyone.split(self._index)
        self._model = lp.sharded(shards, lp.RangePartition(task.size))
        self._trace: list[Event] = []
        self._n_pulled = 0

    def run(self) -> Trained:
        """Train, and wait until all have trained."""
        for clock, (keys, weights) in enumerate(self._pull()):
            gradient = self._task.gradient(weights, clock)
            is_slow = self._task.is_slow(clock)
            time.sleep(self._task.unit_s * (SLOW if is_slow else 1))
            self._trace.append(Event("slow" if is_slow else "quick", clock))
            self._push(clock, (keys, gradient))
        self._everyone.barrier("trained")
        if self._everyone.rank > 0:
            return Trained(self._trace, self._n_pulled, np.empty(0), {}, [])
        shards = lp.broadcast(self._shards)
        psfuncs = {
            name: join(shards.compute(of_part)) for name, (of_part, join) in self._psfuncs.items()
        }
        weights = np.concatenate(shards.weights())
        return Trained(self._trace, self._n_pulled, weights, psfuncs, shards.report())

    def _pull(self) -> Iterator[Sparse]:
        """Yield the keys and weights of each clock, after asking for those of the next one."""
        coming = self._ask(0)
        for clock in range(self._task.clocks):
            keys = coming[0]
            weights = coming[1].result()
            link = self._everyone.size + self._everyone.rank
            self._trace.append(Event("pull", clock, received_from=link))
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
            # A weight of each shard, so that all shards are told of the clock, whichever keys a batch has.
            partition = lp.RangePartition(self._task.size)
            n = len(self._shards)
            firsts = np.array([partition.bounds(i, n)[0] for i in range(n)], np.int32)
            keys, total = add([*parts, (firsts, np.zeros(n))])
            self._model.push(self._index, clock, lp.keys(keys), total)
        self._trace.append(Event("push", clock * self._everyone.size + self._everyone.rank))
