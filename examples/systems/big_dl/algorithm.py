"""BigDL's synchronous SGD: two jobs per iteration, of tasks that are pure functions of blocks.

    job 1, forward-backward     task i: all weights, its examples ──▶ a gradient, cut into N slices
    job 2, synchronization      task n: slice n of all gradients  ──▶ slice n of the weights, and its velocity

Each slice is a block, and has the name of the task that makes it. So a missing block can be made, whether it
was lost or was not made yet. The blocks that its task needs are got in the same way. Spark calls that
lineage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from examples._shared.data import Array

FORWARD_BACKWARD = "forward-backward"
SYNCHRONIZATION = "synchronization"


class Task(NamedTuple):
    """The part of one executor in a job. The first weights have the name of iteration -1."""

    job: str
    iteration: int
    executor: int


class Block(NamedTuple):
    """One of the arrays that a task makes."""

    task: Task
    part: int


Get = Callable[[Sequence[Block]], list[Array]]


class Training(Protocol):
    """A training on parts of each batch. There are as many parts as workers, for any number of executors."""

    @property
    def workers(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...

    def gradient(self, parameters: Array, step: int, worker: int) -> Array:
        """Return the gradient of the mean loss on a part."""


@dataclass(frozen=True)
class Jobs:
    """Both jobs, for a number of executors."""

    training: Training
    momentum: float
    executors: int

    def run(self, task: Task, get: Get) -> list[Array]:
        """Return the blocks that a task makes."""
        job = {FORWARD_BACKWARD: self._forward_backward, SYNCHRONIZATION: self._synchronize}
        return job[task.job](task.iteration, task.executor, get)

    def _forward_backward(self, iteration: int, executor: int, get: Get) -> list[Array]:
        tasks = [Task(SYNCHRONIZATION, iteration - 1, n) for n in range(self.executors)]
        weights = np.concatenate(get([Block(task, 0) for task in tasks]))
        parts = np.array_split(range(self.training.workers), self.executors)[executor]
        gradients = [self.training.gradient(weights, iteration, part) for part in parts]
        return np.array_split(add_up(gradients), self.executors)

    def _synchronize(self, iteration: int, n: int, get: Get) -> list[Array]:
        if iteration < 0:
            raise LookupError(f"slice {n} of the first weights is gone, and no task makes it")
        tasks = [Task(FORWARD_BACKWARD, iteration, executor) for executor in range(self.executors)]
        gradient = add_up(get([Block(task, n) for task in tasks])) / self.training.workers
        before = Task(SYNCHRONIZATION, iteration - 1, n)
        weights, velocity = get([Block(before, 0), Block(before, 1)])
        velocity = self.momentum * velocity + gradient
        return [weights - self.training.learning_rate * velocity, velocity]


def add_up(arrays: Sequence[Array]) -> Array:
    """Return the sum, added up in pairs of pairs, so that its bits are the same for 1, 2, 4, … executors."""
    half = len(arrays) // 2
    if not half:
        return arrays[0]
    return add_up(arrays[:half]) + add_up(arrays[half:])


def dispatches(iterations: int, group: int | None) -> list[list[tuple[str, int]]]:
    """Return the dispatches: each has one job, or all jobs of a group of iterations."""
    jobs = [(job, t) for t in range(iterations) for job in (FORWARD_BACKWARD, SYNCHRONIZATION)]
    size = 2 * group if group else 1
    return [jobs[begin : begin + size] for begin in range(0, len(jobs), size)]
