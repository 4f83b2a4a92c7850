"""The truth for the pipeline: one process, and the paper's formulas."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from examples._shared import networks
from examples._shared.data import Array
from examples.systems.gpipe.training import Training


class Trained(NamedTuple):
    """The gradient of the last batch, and the parameters after it."""

    gradient: Array
    parameters: Array


def train_alone(training: Training) -> Trained:
    """Train in this process, on whole batches."""
    parameters = networks.first_parameters(training.widths)
    gradient = np.zeros_like(parameters)
    for step in range(training.steps):
        gradient = networks.gradient(training.widths, parameters, training.batch(step))
        parameters = parameters - training.learning_rate * gradient
    return Trained(gradient, parameters)


def best_of_all_cuts(costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Try all cuts, and return the most even one."""

    def squares(bounds: tuple[int, ...]) -> int:
        return sum(sum(costs[begin:end]) ** 2 for begin, end in pairwise(bounds))

    inner = combinations(range(1, len(costs)), stages - 1)
    return min(((0, *bounds, len(costs)) for bounds in inner), key=squares)


def bubble(stages: int, micro_batches: int) -> Fraction:
    """Return the share of time in which a stage waits."""
    return Fraction(stages - 1, micro_batches + stages - 1)


def kept(widths: Sequence[int], images: int, micro_batches: int, rematerializes: bool) -> int:
    """Return how many numbers a stage keeps: its inputs, and the outputs of all or of one micro-batch."""
    inputs, *outputs = widths
    images_with_outputs = images // micro_batches if rematerializes else images
    return images * inputs + images_with_outputs * sum(outputs)
