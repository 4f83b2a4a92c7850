"""Ranks that train together. If one is lost, all are started again and go on from rank 0's state.

rank 0 ◀──▶ rank 1
  ▲   ╲   ╱   ▲
  │     ╳     │       parts of gradients, over edges of the graph or by gloo
  ▼   ╱   ╲   ▼
rank 2 ◀──▶ rank 3
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.horovod.algorithm import DistributedOptimizer, Momentum, backward


@dataclass(frozen=True)
class Training:
    """A network, its digits, and how it is trained."""

    digits: Data
    widths: tuple[int, ...]
    steps: int
    fusion_bytes: int = 1 << 20
    wire: str = "float64"
    batch_size: int = 24
    learning_rate: float = 0.05
    momentum: float = 0.9

    def batch(self, step: int) -> Data:
        return self.digits.batch(step, self.batch_size)

    @property
    def first_parameters(self) -> Array:
        return networks.first_parameters(self.widths)


@dataclass(frozen=True)
class Trained:
    """The result of a rank."""

    parameters: Array | None  # of rank 0; of the others the digest is enough
    sha256: str
    left_at: list[int]
    generation: int


def train(group: lp.Collective, training: Training, kill_at: int | None = None) -> Trained:
    """Train as one of the ranks. Rank 1 dies at step `kill_at` of its first attempt."""
    me = lp.current()
    first = training.first_parameters + group.rank  # different on each rank, on purpose
    state = me.load(default=(0, first, np.zeros_like(first)))  # only rank 0 has saved any
    begin, parameters, velocity = group.broadcast(state)
    with ThreadPoolExecutor(1) as communication:
        optimizer = DistributedOptimizer(
            Momentum(parameters, velocity, training.learning_rate, training.momentum),
            lambda gradients: group.all_reduce(gradients, "mean"),
            communication,
            training.fusion_bytes,
            training.wire,
        )
        for step in range(begin, training.steps):
            if step == kill_at and group.rank == 1 and me.attempt == 1:
                lp.testing.crash()
            part = training.batch(step)[group.rank :: group.size]
            backward(training.widths, parameters, part, optimizer)
            optimizer.step()
            if group.rank == 0:
                me.save((step + 1, parameters, velocity), keep=1)
    digest = hashlib.sha256(parameters.tobytes()).hexdigest()
    return Trained(None if group.rank else parameters, digest, optimizer.left_at, group.generation)


def make_program(
    ranks: int, function: Callable[..., Any], *args: Any, backend: str = "courier"
) -> lp.Program:
    """Return the graph: a group of ranks that are started again together."""
    program = lp.Program("horovod")
    with program.group("rank", restart=lp.RestartPolicy(scope="group")):
        for _ in range(ranks):
            program.add_node(lp.CollectiveNode(function, *args, backend=backend))
    return program
