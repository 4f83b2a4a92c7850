"""A sharded parameter server: workers compute gradients, shards apply them to the parameters.

    worker × n ──i-th part of the gradient──▶ shard i of s
         ▲───────i-th part of the parameters──┘

If a shard dies, launchpad starts it again, and it goes on where it was: see _shared/shard.py. A worker saves
itself after each step. If it dies, its next attempt pushes the same gradient again, and a shard applies a
gradient once.

The mode decides only what a shard does with a gradient; the workers' code is the same in all modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.ps.shards import AsyncShard, Shard, SspShard, SyncShard

SHARDS: dict[str, type[Shard]] = {"sync": SyncShard, "ssp": SspShard, "async": AsyncShard}


@dataclass(frozen=True)
class Trained:
    """The result of a worker.

    Attributes:
        pushed: The sum of the gradients that it has pushed.
        parameters: What all workers have learned.
        applied: How many gradients of each worker are in the parameters, by shard.
        staleness: The most gradients between what a worker got and its own, by shard.
        attempts: The attempt in which each shard ends.
    """

    pushed: Array
    parameters: Array
    applied: list[list[int]]
    staleness: list[int]
    attempts: list[int]


class Worker:
    """A worker. It computes gradients on its slice of every batch."""

    def __init__(self, problem: Problem, shards: Sequence[lp.CourierClient[Shard]]) -> None:
        self._problem = problem
        self._shards = shards
        self._me = lp.current()
        self._index = self._me.replica_index

    def run(self) -> Trained:
        """Train; the mode of the shards decides whether workers wait for each other."""
        if not self._me.is_resumed:
            parameters = pull(self._shards)
            self._me.save((0, parameters, np.zeros_like(parameters)), keep=1)
        first_step, parameters, pushed = self._me.load()
        for step in range(first_step, self._problem.steps):
            gradient = self._problem.gradient(parameters, step, self._index)
            pushed += gradient
            parameters = self._push(step, gradient)
            self._me.save((step + 1, parameters, pushed), keep=1)
            if self._index == 0 and step % 100 == 0:
                print(f"step {step}: loss {self._problem.loss(parameters, step):.3f}")
        lp.barrier("trained")
        shards = lp.broadcast(self._shards)
        applied = shards.applied()
        staleness = shards.staleness()
        attempts = shards.attempt()
        return Trained(pushed, pull(self._shards), applied, staleness, attempts)

    def _push(self, step: int, gradient: Array) -> Array:
        """Push each shard its part of the gradient, all at once. Return the new parameters."""
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
    """Return the graph: workers → shards.

    Args:
        order: Records the order in which the shards take gradients, or keeps to a recorded order.
        kill_at: The first shard dies when it has worker 0's gradient of this step.
    """
    if kill_at is not None and kill_at >= problem.steps:
        raise ValueError(f"no shard can be killed at step {kill_at} of {problem.steps}")
    if order is not None and mode != "async":
        raise ValueError(f"no order can be kept to in mode {mode!r}, where calls wait for others")
    program = lp.Program("ps")
    with program.group("shard", restart=lp.RestartPolicy()):
        handles = []
        for i, part in enumerate(np.array_split(problem.first_parameters, shards)):
            own_kill_at = kill_at if i == 0 else None
            node = lp.CourierNode(
                SHARDS[mode], part, problem.workers, problem.learning_rate, own_kill_at
            )
            handles.append(program.add_node(node))
    if order is not None:
        handles = [handle.through(order) for handle in handles]
    with program.group("worker", restart=lp.RestartPolicy()):
        for _ in range(problem.workers):
            program.add_node(lp.PyClassNode(Worker, problem, handles))
    return program
