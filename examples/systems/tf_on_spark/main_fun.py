"""The user's code: a `main_fun(args, feed)` that trains, and one that infers. Input modes don't change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.tf_on_spark.algorithm import DataFeed, Id, Row


class ParameterServer(Protocol):
    """A parameter server. It adds up the gradients of all workers, step by step."""

    def pull(self, worker: int) -> tuple[Array, int]:
        """Return the parameters, and the next step of this worker."""

    def push(self, worker: int, step: int, gradient: Array, ids: list[Id]) -> tuple[Array, int]:
        """Wait for the gradients of all workers. Return the parameters, and the step's number of rows."""


@dataclass(frozen=True)
class Args:
    """The arguments of `main_fun`.

    Attributes:
        parameters: The parameters that training begins with, or those of the model that infers.
        enough_at: The step before which a worker terminates its feed.
        worker, ps: The worker fills these in when all nodes of the cluster are there.
    """

    widths: tuple[int, ...]
    parameters: Array
    batch_size: int = 24
    learning_rate: float = 0.3
    enough_at: int | None = None
    worker: int = 0
    ps: ParameterServer | None = None


def gradient(widths: Sequence[int], parameters: Array, rows: Sequence[Row]) -> Array:
    """Return the sum of the rows' gradients; zeros if there are no rows."""
    if not rows:
        return np.zeros_like(parameters)
    _, images, labels = zip(*rows, strict=True)
    return len(rows) * networks.gradient(
        widths, parameters, Data(np.stack(images), np.array(labels))
    )


def train(args: Args, feed: DataFeed) -> Array:
    """Train in step with the others. A worker without rows goes on with none until all have none."""
    assert args.ps is not None  # a cluster that trains has one
    parameters, step = args.ps.pull(args.worker)
    n_rows = 1
    while n_rows:
        rows = feed.next_batch(args.batch_size)
        of_rows = gradient(args.widths, parameters, rows)
        ids = [row.id for row in rows]
        parameters, n_rows = args.ps.push(args.worker, step, of_rows, ids)
        step += 1
        if step == args.enough_at:
            feed.terminate()
    return parameters


def infer(args: Args, feed: DataFeed) -> None:
    """Read the digits of all rows."""
    while not feed.should_stop():
        rows = feed.next_batch(args.batch_size)
        if rows:
            images = np.stack([row.image for row in rows])
            scores = networks.forward(args.widths, args.parameters, images)[-1]
            feed.batch_results(scores.argmax(axis=1).tolist())
