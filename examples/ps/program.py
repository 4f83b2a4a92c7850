"""The graph of a sharded parameter server: workers compute gradients, shards apply them to the parameters.

    worker × n ──i-th part of the gradient──▶ shard i of s
         ▲───────i-th part of the parameters──┘

If a shard dies, launchpad starts it again, and it goes on where it was: see _shared/shard.py. A worker saves
itself after each step. If it dies, its next attempt pushes the same gradient again, and a shard applies a
gradient once.
"""

from __future__ import annotations

import numpy as np

import launchpad as lp
from examples._shared.problem import Problem
from examples.ps.shards import AsyncShard, Shard, SspShard, SyncShard
from examples.ps.worker import Worker

SHARDS: dict[str, type[Shard]] = {"sync": SyncShard, "ssp": SspShard, "async": AsyncShard}


def make_program(
    problem: Problem,
    mode: str = "sync",
    shards: int = 2,
    order: lp.edges.Record | lp.edges.Replay | None = None,
    kill_at: int | None = None,
    lead: int = 0,
) -> lp.Program:
    """Return the graph: workers → shards.

    Args:
        order: Records the order in which the shards take gradients, or keeps to a recorded order.
        kill_at: The first shard dies when it has worker 0's gradient of this step.
        lead: By how many steps others may overtake the last worker half-way, while it straggles.
    """
    if kill_at is not None and kill_at >= problem.steps:
        raise ValueError(f"no shard can be killed at step {kill_at} of {problem.steps}")
    if order is not None and mode != "async":
        raise ValueError(f"no order can be kept to in mode {mode!r}, where calls wait for others")
    shard = SHARDS[mode]
    program = lp.Program("ps")
    with program.group("shard", restart=lp.RestartPolicy()):
        handles = []
        for i, part in enumerate(np.array_split(problem.first_parameters, shards)):
            arguments = part, problem.workers, problem.learning_rate, None if i else kill_at
            handles.append(program.add_node(lp.CourierNode(shard, *arguments)))
    if order is not None:
        handles = [handle.through(order) for handle in handles]
    with program.group("worker", restart=lp.RestartPolicy()):
        program.add_node(lp.PyClassNode(Worker, problem, handles, lead), replicas=problem.workers)
    return program
