"""A sharded parameter server: workers compute gradients, shards apply them to the parameters.

    worker × n ──i-th part of the gradient──▶ shard i of s
         ▲───────i-th part of the parameters──┘

A shard that dies is started again, and goes on where it was: see _shared/shard.py.

The mode decides only what a shard does with a gradient; the workers' code is the same in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Array
from examples._shared.problem import Problem
from examples.ps.shards import AsyncShard, Shard, SspShard, SyncShard

SHARDS: dict[str, type[Shard]] = {"sync": SyncShard, "ssp": SspShard, "async": AsyncShard}


@dataclass(frozen=True)
class Trained:
    """What a worker returns: the sum of its gradients, what all have learned, and what each shard says."""

    pushed: Array
    parameters: Array
    applied: list[list[int]]
    staleness: list[int]
    attempts: list[int]


class Worker:
    """Computes gradients on its slice of every batch."""

    def __init__(self, problem: Problem, shards: Sequence[lp.CourierClient[Shard]]) -> None:
        self._problem, self._shards = problem, shards
        self._index = lp.current().replica_index

    def run(self) -> Trained:
        """Train, in step with the others or not."""
        parameters = pull(self._shards)
        pushed = np.zeros_like(parameters)
        for step in range(self._problem.steps):
            gradient = self._problem.gradient(parameters, step, self._index)
            pushed += gradient
            parameters = self._push(step, gradient)
            if self._index == 0 and step % 100 == 0:
                batch = self._problem.batch(step)
                scores = networks.forward(self._problem.widths, parameters, batch.images)[-1]
                print(f"step {step}: loss {networks.cross_entropy(scores, batch)[0]:.3f}")
        lp.barrier("trained")
        shards = lp.broadcast(self._shards)
        found = shards.applied(), shards.staleness(), shards.attempt()
        return Trained(pushed, pull(self._shards), *found)

    def _push(self, step: int, gradient: Array) -> Array:
        """Push each shard its part of the gradient, all at once; returns the new parameters."""
        parts = lp.parts(np.array_split(gradient, len(self._shards)))
        return np.concatenate(lp.scatter(self._shards).push(self._index, step, parts))


def pull(shards: Sequence[lp.CourierClient[Shard]]) -> Array:
    """Return all parameters, put together from the shards."""
    return np.concatenate(lp.broadcast(shards).parameters())


def make_program(
    problem: Problem,
    mode: str = "sync",
    shards: int = 2,
    order: lp.edges.Record | lp.edges.Replay | None = None,
    kill_at: int | None = None,
) -> lp.Program:
    """Return the graph: workers → shards, which take gradients as they come or in a recorded order.

    With `kill_at` the first shard dies when it has worker 0's gradient of that step.
    """
    if kill_at is not None and kill_at >= problem.steps:
        raise ValueError(f"no shard can be killed at step {kill_at} of {problem.steps}")
    if order is not None and mode != "async":
        raise ValueError(f"no order can be kept to in mode {mode!r}, where calls wait for others")
    program = lp.Program("ps")
    with program.group("shard", restart=lp.RestartPolicy()):
        how = problem.workers, problem.learning_rate
        handles = [
            program.add_node(lp.CourierNode(SHARDS[mode], part, *how, None if i else kill_at))
            for i, part in enumerate(np.array_split(problem.first_parameters, shards))
        ]
    if order is not None:
        handles = [handle.through(order) for handle in handles]
    with program.group("worker"):
        for _ in range(problem.workers):
            program.add_node(lp.PyClassNode(Worker, problem, handles))
    return program
