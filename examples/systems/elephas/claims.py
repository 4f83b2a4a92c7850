"""Checks of the promises of each mode, on the results of the driver and the workers."""

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples._shared.problem import Problem
from examples.systems.elephas.program import Result
from examples.systems.elephas.worker import VICTIM

TOLERANCE = 1e-12
WANTED_ACCURACY = 0.94


def check_averages(undisturbed: Result, killed: Result, alone: Array, every: str) -> None:
    """Check that the driver's averages are those of one process, and that kills change no bit."""
    difference = float(np.abs(undisturbed.parameters - alone).max())
    check(
        difference <= TOLERANCE,
        f"synchronous: averages after each {every} are those of one process, to {TOLERANCE:g}",
        f"largest difference {difference:.0e}",
    )
    are_equal = killed.parameters == undisturbed.parameters
    check(
        bool(are_equal.all()) and min(attempts(killed)) > 1,
        "synchronous: the kill of a worker, and of the driver, changes no bit",
        f"{are_equal.sum()} of {are_equal.size} parameters are equal, in attempts {attempts(killed)}",
    )


def check_counts(mode: str, result: Result, problem: Problem) -> None:
    """Check that the parameters are the sum of the updates that count as added, each of them once.

    In hogwild some updates must be lost: otherwise the run doesn't show that the driver knows which.
    """
    counts = result.workers[0].fitted.weights.counts
    n_lost = int((counts == 0).sum())
    pairs = zip(counts, result.workers, strict=True)
    counted = problem.first_parameters + sum(own @ worker.deltas for own, worker in pairs)
    difference = float(np.abs(result.parameters - counted).max())
    is_right = counts.max() == 1 and difference <= TOLERANCE and min(attempts(result)) > 1
    claims = {
        "asynchronous": "no update is lost or added twice, although a worker and the driver are killed",
        "hogwild": "some updates are lost, and the parameters are the sum of exactly the others",
    }
    check(
        is_right and (n_lost > 0) == (mode == "hogwild"),
        f"{mode}: {claims[mode]}",
        f"{counts.size} - {n_lost} = {counts.sum()} updates, whose sum is what was learned, to"
        f" {difference:.0e}; attempts {attempts(result)}",
    )


def check_accuracy(mode: str, result: Result, problem: Problem, held_out: Data) -> None:
    """Check that the model recognises enough of the held-out rows."""
    accuracy = problem.accuracy(result.parameters, held_out)
    loss, _ = problem.loss_and_gradient(result.parameters, held_out)
    check(
        accuracy >= WANTED_ACCURACY,
        f"{mode}: at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are recognised",
        f"{accuracy:.3f}, with a loss of {loss:.3f}",
    )


def losses(result: Result, problem: Problem, held_out: Data) -> list[float]:
    """Return the held-out losses after 1, 2, 3, … updates of each worker, without the lost ones."""
    counts = result.workers[0].fitted.weights.counts
    pairs = zip(counts, result.workers, strict=True)
    updates = np.sum([own[:, None] * worker.deltas for own, worker in pairs], axis=0)
    on_the_way = problem.first_parameters + np.cumsum(updates, axis=0)
    return [problem.loss_and_gradient(each, held_out)[0] for each in on_the_way]


def attempts(result: Result) -> list[int]:
    """Return the last attempts of the worker and the driver that should have been killed."""
    return [result.workers[VICTIM].attempt, result.workers[0].fitted.attempt]
