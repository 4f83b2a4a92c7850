"""A sharded parameter server: workers compute gradients, shards apply them to the parameters.

    worker × n ──i-th part of the gradient──▶ shard i of s
         ▲───────i-th part of the parameters──┘

A shard that dies is started again, and goes on where it was: see shards.py.

The mode decides only what a shard does with a gradient; the workers' code is the same in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples.ps import model
from examples.ps.model import Array, Examples
from examples.ps.shards import AsyncShard, Shard, SyncShard

SHARDS: dict[str, type[Shard]] = {"sync": SyncShard, "async": AsyncShard}
LEARNING_RATE = 0.5
STEPS = 400
SLICE = 48  # examples a worker takes of each batch; the slices of all workers are the batch
WANTED_ACCURACY = 0.95
TOLERANCE = 1e-6


class Worker:
    """Computes gradients on its slice of every batch."""

    def __init__(self, examples: Examples, shards: Sequence[lp.CourierClient[Shard]]) -> None:
        self._examples = examples
        self._shards = shards
        self._index, self._workers = lp.current().replica_index, lp.current().num_replicas

    def run(self) -> tuple[Array, list[list[int]]]:
        """Train; returns what all have learned, and how many gradients of each are in it, by shard."""
        parameters = pull(self._shards)
        for step in range(STEPS):
            examples = self._slice(step)
            if self._index == 0 and step % 100 == 0:
                print(f"step {step}: loss {model.loss(parameters, examples):.3f}")
            parameters = self._push(step, model.gradient(parameters, examples))
        lp.barrier("trained")
        return pull(self._shards), lp.broadcast(self._shards).applied()

    def _slice(self, step: int) -> Examples:
        batch = model.batch(self._examples, step, SLICE * self._workers)
        return batch.take(np.arange(SLICE) + SLICE * self._index)

    def _push(self, step: int, gradient: Array) -> Array:
        """Push each shard its part of the gradient, all at once; returns the new parameters."""
        parts = lp.parts(np.array_split(gradient, len(self._shards)))
        return np.concatenate(lp.scatter(self._shards).push(self._index, step, parts))


def pull(shards: Sequence[lp.CourierClient[Shard]]) -> Array:
    """Return all parameters, put together from the shards."""
    return np.concatenate(lp.broadcast(shards).parameters())


def check(learned: tuple[Array, list[list[int]]], mode: str) -> None:
    """Raise unless this is what the workers should have learned."""
    parameters, applied = learned
    examples, held_out = model.load_digits()
    check_applied(applied)
    print(f"sha256 of the parameters: {hashlib.sha256(parameters.tobytes()).hexdigest()}")
    if mode == "sync":
        check_equals_large_batch(parameters, examples, len(applied[0]))
    check_accuracy(parameters, held_out)


def check_applied(applied: Sequence[Sequence[int]]) -> None:
    """Raise unless every shard has applied each gradient of every worker exactly once."""
    print(f"gradients applied: {' + '.join(str(sum(of_shard)) for of_shard in applied)}")
    if any(count != STEPS for of_shard in applied for count in of_shard):
        raise ArithmeticError(f"each should be {STEPS} of every worker, not {applied}")


def check_equals_large_batch(parameters: Array, examples: Examples, workers: int) -> None:
    """Raise unless one process, training on the whole batches, arrives at the same parameters."""
    alone = model.train_alone(examples, STEPS, SLICE * workers, LEARNING_RATE)
    difference = float(np.abs(parameters - alone).max())
    print(f"largest difference from SGD on large batches in one process: {difference:.1e}")
    if difference > TOLERANCE:
        raise ArithmeticError(f"the parameters should differ by {TOLERANCE} at most")


def check_accuracy(parameters: Array, held_out: Examples) -> None:
    """Raise unless enough of the digits that were held out are read correctly."""
    accuracy = model.accuracy(parameters, held_out)
    print(f"accuracy on {len(held_out)} held-out digits: {accuracy:.3f}")
    if accuracy < WANTED_ACCURACY:
        raise ArithmeticError(f"the accuracy should be {WANTED_ACCURACY} at least")
    print("the answer is right")


def make_program(
    mode: str = "sync",
    workers: int = 4,
    shards: int = 2,
    order: lp.edges.Record | lp.edges.Replay | None = None,
) -> lp.Program:
    """Return the graph: workers → shards, which take gradients as they come or in a recorded order."""
    examples, _ = model.load_digits()
    program = lp.Program("ps")
    with program.group("shard", restart=lp.RestartPolicy()):
        handles = [
            program.add_node(lp.CourierNode(SHARDS[mode], part, workers, LEARNING_RATE))
            for part in np.array_split(np.zeros(model.PARAMETERS), shards)
        ]
    if order is not None:
        handles = [handle.through(order) for handle in handles]
    with program.group("worker"):
        for _ in range(workers):
            program.add_node(lp.PyClassNode(Worker, examples, handles))
    return program
