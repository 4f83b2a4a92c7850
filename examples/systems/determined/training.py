"""A trial: a network that learns to read digits, with one choice of hyperparameters."""

from collections.abc import Callable, Sequence

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.determined.algorithm import Hyperparameters

WIDTHS = (64, 16, 10)
BATCH_SIZE = 32


def first_parameters(trial: int) -> Array:
    """Return the parameters that the training of a trial begins with."""
    return networks.first_parameters(WIDTHS, trial)


def train_epoch(
    parameters: Array,
    hyperparameters: Hyperparameters,
    digits: Data,
    epoch: int,
    gradients: Callable[[Array, Data], Sequence[Array]],
) -> Array:
    """Return the parameters after an epoch; `gradients` returns the gradients of all parts of a batch."""
    order = np.random.default_rng([1, epoch]).permutation(len(digits))
    for rows in np.array_split(order, len(digits) // BATCH_SIZE):
        parts = gradients(parameters, digits[rows])
        gradient = sum(parts) / len(parts) + hyperparameters["decay"] * parameters
        parameters = parameters - hyperparameters["rate"] * gradient
    return parameters


def part_gradient(parameters: Array, batch: Data, rank: int, size: int) -> Array:
    """Return the gradient on a rank's part of a batch."""
    return networks.gradient(WIDTHS, parameters, batch[slice(rank, None, size)])


def loss(parameters: Array, digits: Data) -> float:
    """Return the loss on these digits, infinite if the trial has diverged."""
    scores = networks.forward(WIDTHS, parameters, digits.inputs)[-1]
    mean, _ = networks.cross_entropy(scores, digits)
    return mean if np.isfinite(mean) else float("inf")
