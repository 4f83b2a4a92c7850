"""The driver: it dispatches the tasks of all iterations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.big_dl.algorithm import SYNCHRONIZATION, Block, Task, dispatches
from examples.systems.big_dl.executor import Executor


class Trained(NamedTuple):
    """The learned parameters, and how many tasks each executor has run in which last attempt."""

    parameters: Array
    made: list[int]
    attempts: list[int]


def drive(
    executors: Sequence[lp.CourierClient[Executor]], iterations: int, group: int | None
) -> Trained:
    """Dispatch the tasks of all iterations, then put the slices together."""
    indices = range(len(executors))
    all_of = lp.scatter(executors)
    for jobs in dispatches(iterations, group):
        tasks = [[Task(job, iteration, i) for job, iteration in jobs] for i in indices]
        all_of.execute(lp.parts(tasks))
    last = [Block(Task(SYNCHRONIZATION, iterations - 1, i), 0) for i in indices]
    n_made, attempts = zip(*lp.broadcast(executors).made(), strict=True)
    return Trained(np.concatenate(all_of.get(lp.parts(last))), list(n_made), list(attempts))
