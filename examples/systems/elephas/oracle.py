"""The serial truth: averaging, in one process."""

from collections.abc import Sequence

import numpy as np

from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.elephas.algorithm import Partition


def average_alone(problem: Problem, partitions: Sequence[Partition], every: int) -> Array:
    """Train a copy on each partition, and go on from the mean of the copies after each `every` steps."""
    mean = problem.first_parameters
    for first in range(0, problem.steps, every):
        copies = []
        for partition in partitions:
            copy = mean
            for step in range(first, min(first + every, problem.steps)):
                copy = copy - problem.learning_rate * partition(copy, step)
            copies.append(copy)
        mean = np.mean(copies, axis=0)
    return mean
