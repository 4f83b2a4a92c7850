"""Horovod on the problem that all systems share."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Learned, Problem
from examples.systems.horovod.program import Training, make_program, train


@dataclass(frozen=True)
class FromZeros(Training):
    """A training that begins with the same parameters as the other systems."""

    @property
    def first_parameters(self) -> Array:
        return np.zeros_like(super().first_parameters)


def learn(problem: Problem, is_killed: bool) -> Learned:
    """Train with a rank for each slice. One may be killed half-way; raise RuntimeError if it was not."""
    training = FromZeros(
        problem.training,
        problem.widths,
        problem.steps,
        batch_size=problem.slice_size * problem.workers,
        learning_rate=problem.learning_rate,
        momentum=0,
    )
    kill_at = problem.steps // 2 if is_killed else None
    running = lp.launch(make_program(problem.workers, train, training, kill_at))
    trained = running.results("rank")[0]
    running.wait()
    if is_killed and trained.generation == 1:
        raise RuntimeError("a rank was to be killed, and all ended in generation 1")
    return Learned(trained.parameters, staleness=0, edges=running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {"horovod": learn}
