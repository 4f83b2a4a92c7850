"""A sharded parameter server whose workers pull and push only what occurs in their batches.

    worker × n ──get(worker, clock, keys)──▶ shard × s       asked for a clock ahead
               ──push(worker, clock, keys, gradient)──▶
    the first  ──compute(psfunc)──▶

Workers may be in groups. The workers of a group add up their gradients, and push once, as one worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import launchpad as lp
from examples.systems.angel.algorithm import PsFunc, Task, Weights
from examples.systems.angel.shard import Shard
from examples.systems.angel.worker import Worker

BSP = 0.0
ASP = float("inf")


def make_program(
    tasks: Sequence[Task],
    staleness: float = BSP,
    group_size: int = 1,
    shards: int = 2,
    psfuncs: Mapping[str, PsFunc] | None = None,
    kills: Sequence[int] = (),
) -> lp.Program:
    """Return the graph: workers, each with its task, → shards, of which the first kills itself."""
    if len(tasks) % group_size:
        raise ValueError(f"{len(tasks)} workers cannot be in groups of {group_size}")
    rate = tasks[0].rate / len(tasks)
    pushing = len(tasks) // group_size
    weights = tasks[0].first_weights()
    partition = lp.RangePartition(tasks[0].size)
    program = lp.Program("angel")
    again = lp.RestartPolicy(max_restarts=3 + len(kills), backoff=0)
    with program.group("shard", restart=again):
        handles = []
        for i in range(shards):
            own = Weights(weights[slice(*partition.bounds(i, shards))])
            node = lp.CourierNode(Shard, own, pushing, rate, staleness, kills if i == 0 else ())
            handles.append(program.add_node(node))
    with program.group("worker"):
        for task in tasks:
            program.add_node(lp.CollectiveNode(Worker, task, group_size, handles, psfuncs or {}))
    return program
