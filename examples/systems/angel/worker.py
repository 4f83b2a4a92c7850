"""A worker: it pulls weights, computes the gradient of its slice, and pushes it, alone or in a group."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.angel.algorithm import PsFunc, add
from examples.systems.angel.shard import Report, Shard

SLOW = 5  # how many times longer a straggler computes


class Trained(NamedTuple):
    """The result of a worker: its events in order. The first one adds what the shards say at the end."""

    trace: list[str]
    weights: Array
    psfuncs: dict[str, Any]
    shards: list[Report]


def work(
    everyone: lp.Collective,
    problem: Problem,
    group_size: int,
    shards: Sequence[lp.CourierClient[Shard]],
    psfuncs: Mapping[str, PsFunc],
    unit_s: float,
) -> Trained:
    """Train, and wait until all have trained. The first worker of a group pushes the sum of its gradients.

    Args:
        unit_s: How long a worker sleeps at each clock, to stand for its work. At a quarter of its clocks it
            is a straggler.
    """
    rank = everyone.rank
    index = rank // group_size
    group = everyone.split(index)
    partition = lp.RangePartition(len(problem.first_parameters))
    model = lp.sharded(shards, partition)
    # A weight of each shard, so that all shards are told of the clock, whichever keys a slice has.
    n = len(shards)
    firsts = np.array([partition.bounds(i, n)[0] for i in range(n)], np.int32)
    nothing = firsts, np.zeros(n)
    trace: list[str] = []

    def ask(clock: int) -> Future[Array]:
        trace.append("ask")
        return lp.submit(model.get, index, clock, lp.keys(problem.keys(clock, rank)))

    coming = ask(0)
    for clock in range(problem.steps):
        weights = coming.result()
        trace.append("pull")
        if clock + 1 < problem.steps:
            coming = ask(clock + 1)
        gradient = problem.gradient(weights, clock, rank)
        is_slow = np.random.default_rng([rank, clock, 1]).random() < 0.25
        time.sleep(unit_s * (SLOW if is_slow else 1))
        trace.append("slow" if is_slow else "quick")
        parts = group.all_gather_object((problem.keys(clock, rank), gradient))
        if group.rank == 0:
            keys, total = add([*parts, nothing])
            model.push(index, clock, lp.keys(keys), total)
        trace.append("push")
    everyone.barrier("trained")
    if rank > 0:
        return Trained(trace, np.empty(0), {}, [])
    every = lp.broadcast(shards)
    values = {name: join(every.compute(of_part)) for name, (of_part, join) in psfuncs.items()}
    return Trained(trace, np.concatenate(every.weights()), values, every.report())
