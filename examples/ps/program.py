"""A sharded parameter server: workers compute gradients, shards apply them to the parameters.

    worker × n ──i-th part of the gradient──▶ shard i of s
         ▲───────i-th part of the parameters──┘

A shard that dies is started again, and goes on where it was: see shards.py.

The mode decides only what a shard does with a gradient; the workers' code is the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.digits import Array, Digits
from examples.ps.shards import AsyncShard, Shard, SyncShard

SHARDS: dict[str, type[Shard]] = {"sync": SyncShard, "async": AsyncShard}
WIDTHS = (64, 10)  # softmax regression
LEARNING_RATE = 0.5
STEPS = 400
SLICE = 48  # examples a worker takes of each batch; the slices of all workers are the batch


class Worker:
    """Computes gradients on its slice of every batch."""

    def __init__(self, training: Digits, shards: Sequence[lp.CourierClient[Shard]]) -> None:
        self._training = training
        self._shards = shards
        self._index, self._workers = lp.current().replica_index, lp.current().num_replicas

    def run(self) -> tuple[Array, list[list[int]]]:
        """Train; returns what all have learned, and how many gradients of each are in it, by shard."""
        parameters = pull(self._shards)
        for step in range(STEPS):
            part = self._slice(step)
            if self._index == 0 and step % 100 == 0:
                scores = networks.forward(WIDTHS, parameters, part.images)[-1]
                print(f"step {step}: loss {networks.cross_entropy(scores, part)[0]:.3f}")
            parameters = self._push(step, networks.gradient(WIDTHS, parameters, part))
        lp.barrier("trained")
        return pull(self._shards), lp.broadcast(self._shards).applied()

    def _slice(self, step: int) -> Digits:
        batch = self._training.batch(step, SLICE * self._workers)
        return batch[SLICE * self._index : SLICE * (self._index + 1)]

    def _push(self, step: int, gradient: Array) -> Array:
        """Push each shard its part of the gradient, all at once; returns the new parameters."""
        parts = lp.parts(np.array_split(gradient, len(self._shards)))
        return np.concatenate(lp.scatter(self._shards).push(self._index, step, parts))


def pull(shards: Sequence[lp.CourierClient[Shard]]) -> Array:
    """Return all parameters, put together from the shards."""
    return np.concatenate(lp.broadcast(shards).parameters())


def first_parameters() -> Array:
    """Return zeros, from which softmax regression can begin."""
    return np.zeros_like(networks.first_parameters(WIDTHS))


def make_program(
    mode: str = "sync",
    workers: int = 4,
    shards: int = 2,
    order: lp.edges.Record | lp.edges.Replay | None = None,
) -> lp.Program:
    """Return the graph: workers → shards, which take gradients as they come or in a recorded order."""
    training, _ = digits.load()
    program = lp.Program("ps")
    with program.group("shard", restart=lp.RestartPolicy()):
        handles = [
            program.add_node(lp.CourierNode(SHARDS[mode], part, workers, LEARNING_RATE))
            for part in np.array_split(first_parameters(), shards)
        ]
    if order is not None:
        handles = [handle.through(order) for handle in handles]
    with program.group("worker"):
        for _ in range(workers):
            program.add_node(lp.PyClassNode(Worker, training, handles))
    return program
