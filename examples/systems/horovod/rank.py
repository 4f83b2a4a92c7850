"""A rank. If one is lost, all are started again and go on from rank 0's state."""

from dataclasses import dataclass
from functools import partial

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.logical_time import Traces
from examples._shared.optimizers import Momentum
from examples._shared.problem import Problem
from examples.systems.horovod.algorithm import Buckets, DistributedOptimizer


@dataclass(frozen=True)
class Options:
    """The optimizer's momentum, the size of a full bucket, and the type in which gradients travel."""

    momentum: float = 0.9
    fusion_bytes: int = 1 << 20
    wire: str = "float64"


@dataclass(frozen=True)
class Trained:
    """The result of a rank.

    Attributes:
        losses: The mean loss on its slice, at each step of this generation.
        traces: The events of its main thread, and of its thread of communication.
    """

    parameters: Array
    losses: list[float]
    traces: Traces
    generation: int


def train(
    group: lp.Collective, problem: Problem, options: Options, kill_at: int | None = None
) -> Trained:
    """Train as one of the ranks. Rank 1 dies at step `kill_at` of its first attempt."""
    me = lp.current()
    first = problem.first_parameters + group.rank  # different on each rank, on purpose
    state = me.load(default=(0, first, np.zeros_like(first)))  # only rank 0 has saved any
    begin, parameters, velocity = group.broadcast(state)
    momentum = Momentum(parameters, velocity, problem.learning_rate, options.momentum)
    buckets = Buckets(partial(group.all_reduce, op="mean"), options.fusion_bytes, options.wire)
    optimizer = DistributedOptimizer(momentum, buckets)
    losses = []
    for step in range(begin, problem.steps):
        if step == kill_at and group.rank == 1 and me.attempt == 1:
            lp.testing.crash()
        losses.append(optimizer.backward(problem, problem.slice(step, group.rank)))
        optimizer.step()
        if group.rank == 0:
            me.save((step + 1, parameters, velocity), keep=1)
    return Trained(parameters, losses, buckets.traces, group.generation)
