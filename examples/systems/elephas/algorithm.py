"""The training of a copy of the model on a partition: the work of a worker between two exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from examples._shared.data import Array, Data
from examples._shared.problem import Problem

Partition = Callable[[Array, int], Array]
"""A worker's part of the data: a function that returns the gradient by the parameters at a step."""


@dataclass(frozen=True)
class Rows:
    """A partition with rows of its own. Each epoch goes through them in another order."""

    problem: Problem
    n_batches: int

    def __call__(self, parameters: Array, step: int) -> Array:
        epoch, batch = divmod(step, self.n_batches)
        order = np.random.default_rng(epoch).permutation(len(self.problem.training))
        rows = np.array_split(order, self.n_batches)[batch]
        return self.problem.loss_and_gradient(parameters, self.problem.training[rows])[1]


def partitions_of(problem: Problem, lists: Sequence[Data] = ()) -> list[Rows]:
    """Return a partition for each worker, all with the same number of batches.

    Args:
        lists: The rows of each worker. By default each has an equal share of the problem's rows.
    """
    lists = lists or [problem.training[i :: problem.workers] for i in range(problem.workers)]
    sizes = [len(rows) for rows in lists]
    n_batches = -(-max(sizes) // problem.slice_size)
    if min(sizes) < n_batches:
        raise ValueError(
            f"partition {sizes.index(min(sizes))} has {min(sizes)} rows: too few for the {n_batches} batches"
            f" of an epoch; make the partitions more alike (they have {sizes} rows) or the batches larger"
        )
    return [Rows(replace(problem, training=rows), n_batches) for rows in lists]


def train(partition: Partition, parameters: Array, steps: range, learning_rate: float) -> Array:
    """Return the parameters after these steps of gradient descent."""
    for step in steps:
        parameters = parameters - learning_rate * partition(parameters, step)
    return parameters


class Weights(NamedTuple):
    """Parameters, and how often each update is in them, by worker and number of the update."""

    parameters: Array
    counts: npt.NDArray[np.int64]

    def plus(self, delta: Array, worker: int, number: int) -> Weights:
        """Return weights that include this update."""
        counts = self.counts.copy()
        counts[worker, number] += 1
        return Weights(self.parameters + delta, counts)
