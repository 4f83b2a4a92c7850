"""Code of a user: training in one process, the same in a cluster, inference. Input modes don't change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.networks import Network, loss_and_gradient
from examples.systems.tf_on_spark.algorithm import Context, Id

BATCH_SIZE = 24
LEARNING_RATE = 0.3
Pairs = Sequence[tuple[Array, int]]  # the rows of a batch: an image, and the digit that it shows


def step(network: Network, parameters: Array, rows: Pairs) -> tuple[float, Array]:
    """Return the mean loss, and the change of the parameters that reduces it."""
    data = Data(*map(np.array, zip(*rows, strict=True)))
    loss, gradient = loss_and_gradient(network, parameters, data)
    return loss, -LEARNING_RATE * gradient


def train_alone(network: Network, batches: Iterable[Pairs]) -> tuple[Array, list[float]]:
    """Return the parameters, and the losses."""
    parameters = network.first_parameters()
    losses = []
    for rows in batches:
        loss, change = step(network, parameters, rows)
        parameters = parameters + change
        losses.append(loss)
    return parameters, losses


def train(network: Network, context: Context) -> tuple[Array, list[float]]:
    """Return the parameters, and the losses."""
    parameters = context.parameters
    losses = []
    for rows in context.batches(BATCH_SIZE):
        loss, change = step(network, parameters, rows)
        parameters = context.add(change)
        losses.append(loss)
    return context.parameters, losses


def infer(network: Network, context: Context) -> list[tuple[Id, int]]:
    """Return the class of each row."""
    for rows in context.batches(BATCH_SIZE):
        images = np.stack([image for image, _ in rows])
        scores = network.forward(context.parameters, images)[-1]
        context.batch_results(scores.argmax(axis=1).tolist())
    return context.results


def take_some(n_batches: int, context: Context) -> None:
    """Take a few batches, and end."""
    for _ in islice(context.batches(BATCH_SIZE), n_batches):
        pass
    context.terminate()
