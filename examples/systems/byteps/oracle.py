"""The truth for the workers: one process that adds up all gradients, and ranks that all-reduce them."""

import hashlib
from collections.abc import Callable
from functools import reduce

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.byteps.optimizer import Momentum


def train_alone(problem: Problem, momentum: float) -> str:
    """Return the digest of the parameters. Gradients are added up in the workers' order."""

    def total(parameters: Array, step: int) -> Array:
        gradients = (problem.gradient(parameters, step, i) for i in range(problem.workers))
        return reduce(np.add, gradients)

    return _train(problem, momentum, total)


def train_by_all_reduce(group: lp.Collective, problem: Problem, momentum: float) -> str:
    """Return the digest of the parameters, as one of the ranks."""

    def total(parameters: Array, step: int) -> Array:
        return group.all_reduce(problem.gradient(parameters, step, group.rank))

    return _train(problem, momentum, total)


def _train(problem: Problem, momentum: float, total: Callable[[Array, int], Array]) -> str:
    threadpoolctl.threadpool_limits(1)  # as in the workers
    parameters = problem.first_parameters
    optimizer = Momentum(parameters, problem.learning_rate, momentum)
    for step in range(problem.steps):
        optimizer.step(total(parameters, step) / problem.workers)
    return hashlib.sha256(parameters.tobytes()).hexdigest()
