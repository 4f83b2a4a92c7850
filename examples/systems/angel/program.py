"""A sharded parameter server whose workers pull and push only what occurs in their batches.

    worker × n ──get(worker, clock, keys)──▶ shard × s       asked for a clock ahead
               ──push(worker, clock, keys, gradient)──▶
    the first  ──compute(psfunc)──▶

Workers may be in groups. The workers of a group add up their gradients, and push once, as one worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import launchpad as lp
from examples.systems.angel.algorithm import Task
from examples.systems.angel.shard import Shard
from examples.systems.angel.worker import Worker

BSP = 0.0
ASP = float("inf")


def make_program(
    tasks: Sequence[Task],
    staleness: float = BSP,
    group_size: int = 1,
    shards: int = 2,
    kills: Sequence[int] = (),
) -> lp.Program:
    """Return the graph: workers, each with its task, → shards, of which the first kills itself."""
    if len(tasks) % group_size:
        raise ValueError(f"{len(tasks)} workers cannot be in groups of {group_size}")
    size = tasks[0].size
    rate = tasks[0].rate / len(tasks)
    pushing = len(tasks) // group_size
    program = lp.Program("angel")
    again = lp.RestartPolicy(max_restarts=3 + len(kills), backoff=0)
    with program.group("shard", restart=again):
        handles = [
            program.add_node(lp.CourierNode(Shard, size, pushing, rate, staleness, kills))
            for _ in range(shards)
        ]
    with program.group("worker"):
        for task in tasks:
            program.add_node(lp.CollectiveNode(Worker, task, group_size, handles))
    return program
