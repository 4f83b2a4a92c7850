"""Angel's methods on the problem that all systems share. Each gradient has all keys."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Learned, Problem
from examples.systems.angel.algorithm import Keys, Task
from examples.systems.angel.program import make_program


@dataclass(frozen=True)
class ReadDigits(Task):
    """The task of a worker: its slices of the batches."""

    problem: Problem
    worker: int

    def keys(self, clock: int) -> Keys:
        return np.arange(self.size)

    def gradient(self, weights: Array, clock: int) -> Array:
        return self.problem.gradient(weights, clock, self.worker)


def train(problem: Problem, kill: bool, staleness: float = 1, group_size: int = 1) -> Learned:
    """Train with slack between workers, or groups of them. A shard may kill itself half-way."""
    size = len(problem.first_parameters)
    tasks = [
        ReadDigits(size, problem.learning_rate, problem.steps, 0.0, problem, worker)
        for worker in range(problem.workers)
    ]
    kills = [problem.steps // 2] if kill else []
    running = lp.launch(make_program(tasks, staleness, group_size, kills=kills))
    running.wait()
    outcome = running.results("worker")[0].outcome
    most = max(shard.staleness for shard in outcome.shards)
    return Learned(outcome.weights.values, most, running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {
    "angel, SSP": train,
    "angel, hybrid": partial(train, group_size=2),
}
