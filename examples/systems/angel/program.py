"""A sharded parameter server whose workers pull and push only what occurs in their batches.

    worker × n ──get(worker, clock, keys)──▶ shard × s       asked for a clock ahead
               ──push(worker, clock, keys, gradient)──▶
    the first  ──compute(psfunc)──▶

Workers may be in groups. The workers of a group add up their gradients, and push once, as one worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.angel.algorithm import PsFunc, Weights
from examples.systems.angel.shard import Shard
from examples.systems.angel.worker import work

BSP = 0.0
ASP = float("inf")


def make_program(
    problem: Problem,
    staleness: float = BSP,
    group_size: int = 1,
    shards: int = 2,
    psfuncs: Mapping[str, PsFunc] | None = None,
    kills: Sequence[int] = (),
    unit_s: float = 0.0,
) -> lp.Program:
    """Return the graph: workers → shards, of which the first kills itself at the clocks `kills`."""
    if problem.workers % group_size:
        raise ValueError(f"{problem.workers} workers cannot be in groups of {group_size}")
    rate = problem.learning_rate / problem.workers
    pushing = problem.workers // group_size
    program = lp.Program("angel")
    again = lp.RestartPolicy(max_restarts=3 + len(kills), backoff=0)
    with program.group("shard", restart=again):
        handles = []
        for i, part in enumerate(np.array_split(problem.first_parameters, shards)):
            arguments = Weights(part), pushing, rate, staleness, () if i else kills
            handles.append(program.add_node(lp.CourierNode(Shard, *arguments)))
    with program.group("worker"):
        for _ in range(problem.workers):
            options = group_size, handles, psfuncs or {}, unit_s
            program.add_node(lp.CollectiveNode(work, problem, *options))
    return program
