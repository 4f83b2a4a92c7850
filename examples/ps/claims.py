"""What the workers should have learned, checked."""

import hashlib
from collections.abc import Sequence

import numpy as np

from examples._shared import digits, networks
from examples._shared.checks import check
from examples._shared.digits import Array, Digits
from examples.ps.program import LEARNING_RATE, SLICE, STEPS, WIDTHS, first_parameters

WANTED_ACCURACY = 0.95
TOLERANCE = 1e-6


def check_learned(learned: tuple[Array, list[list[int]]], mode: str) -> None:
    """Raise unless this is what the workers should have learned."""
    parameters, applied = learned
    training, held_out = digits.load()
    check_applied(applied)
    print(f"sha256 of the parameters: {hashlib.sha256(parameters.tobytes()).hexdigest()}")
    if mode == "sync":
        check_equals_large_batch(parameters, training, len(applied[0]))
    check_accuracy(parameters, held_out)


def check_applied(applied: Sequence[Sequence[int]]) -> None:
    """Every shard has applied each gradient of every worker exactly once."""
    check(
        all(count == STEPS for of_shard in applied for count in of_shard),
        f"each shard applies {STEPS} gradients of every worker, each once",
        " + ".join(str(sum(of_shard)) for of_shard in applied),
    )


def check_equals_large_batch(parameters: Array, training: Digits, workers: int) -> None:
    """One process, training on the whole batches, arrives at the same parameters."""
    difference = float(np.abs(parameters - train_alone(training, workers)).max())
    check(
        difference <= TOLERANCE,
        f"workers in step learn what one process learns from large batches, to {TOLERANCE:g}",
        f"largest difference {difference:.1e}",
    )


def train_alone(training: Digits, workers: int) -> Array:
    """Return what synchronous workers must arrive at, trained in this process."""
    parameters = first_parameters()
    for step in range(STEPS):
        batch = training.batch(step, SLICE * workers)
        parameters -= LEARNING_RATE * networks.gradient(WIDTHS, parameters, batch)
    return parameters


def check_accuracy(parameters: Array, held_out: Digits) -> None:
    """Enough of the digits that were held out are read correctly."""
    accuracy = networks.accuracy(WIDTHS, parameters, held_out)
    check(
        accuracy >= WANTED_ACCURACY,
        f"of {len(held_out)} held-out digits {WANTED_ACCURACY} are read at least",
        f"{accuracy:.3f}",
    )
