"""The serial truth: one process that has all the weights, and takes the workers' batches in their order."""

from collections.abc import Sequence

import numpy as np

from examples._shared.data import Array
from examples.systems.angel.algorithm import Task
from examples.systems.angel.regression import Rows


def train(tasks: Sequence[Task]) -> Array:
    """Return the weights. At each clock all workers' gradients are computed from the same weights."""
    weights = np.zeros(tasks[0].size)
    for clock in range(tasks[0].clocks):
        keys = [task.keys(clock) for task in tasks]
        gradients = [
            task.gradient(weights[own], clock) for task, own in zip(tasks, keys, strict=True)
        ]
        for own, gradient in zip(keys, gradients, strict=True):
            weights[own] -= tasks[0].rate / len(tasks) * gradient
    return weights


def accuracy(weights: Array, rows: Rows) -> float:
    """Return the share of rows whose label the weights predict."""
    return float(((rows.scores(weights, rows.keys) > 0) == rows.labels).mean())
