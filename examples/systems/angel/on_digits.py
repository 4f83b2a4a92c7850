"""Angel's methods on a problem that all systems share. Each gradient has all keys."""

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
class Slices(Task):
    """The task of a worker: its slices of the batches of any problem."""

    problem: Problem
    worker: int

    def keys(self, clock: int) -> Keys:
        return np.arange(self.size)

    def gradient(self, weights: Array, clock: int) -> Array:
        return self.problem.gradient(weights, clock, self.worker)

    def first_weights(self) -> Array:
        return self.problem.first_parameters


def tasks_of(problem: Problem) -> list[Slices]:
    """Return the tasks of all workers."""
    size = len(problem.first_parameters)
    how = size, problem.learning_rate, problem.steps, problem
    return [Slices(*how, worker) for worker in range(problem.workers)]


def train(problem: Problem, kill: bool, staleness: float = 1, group_size: int = 1) -> Learned:
    """Train with slack between workers, or groups of them. A shard may kill itself half-way."""
    kills = [problem.steps // 2] if kill else []
    running = lp.launch(make_program(tasks_of(problem), staleness, group_size, kills=kills))
    running.wait()
    trained = running.results("worker")[0]
    most = max(shard.staleness for shard in trained.shards)
    return Learned(trained.weights, most, running.edges())


METHODS: dict[str, Callable[[Problem, bool], Learned]] = {
    "angel, SSP": train,
    "angel, hybrid": partial(train, group_size=2),
}
