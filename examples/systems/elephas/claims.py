"""Checks of the promises of each mode, on the results of drivers and workers."""

from collections.abc import Sequence

import numpy as np

from examples._shared import networks
from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.elephas.algorithm import Model
from examples.systems.elephas.program import Result
from examples.systems.elephas.worker import VICTIM

TOLERANCE = 1e-12
WANTED_ACCURACY = 0.94


def check_averages(result: Result, alone: Sequence[Array], frequency: str) -> None:
    """Check that the driver's averages are those of one process."""
    pairs = zip(result.fitted, alone, strict=False)
    difference = max(
        float(np.abs(fitted.weights.parameters - average).max()) for fitted, average in pairs
    )
    check(
        difference <= TOLERANCE,
        f"synchronous: averages after each {frequency} are those of one process, to {TOLERANCE:g}",
        f"largest difference {difference:.0e}, of {len(alone)} models",
    )


def check_same_bits(result: Result) -> None:
    """Check that the last model, trained like the first but with kills, has the same bits."""
    first, last = (result.fitted[i].weights.parameters for i in (0, -1))
    check(
        bool((first == last).all()) and min(attempts(result)) > 1,
        "synchronous: the kill of a worker, and of the driver, changes no bit",
        f"{(first == last).sum()} of {len(first)} parameters are equal, in attempts {attempts(result)}",
    )


def check_none_lost(result: Result, models: Sequence[Model]) -> None:
    """Check that each pushed update is in the parameters exactly once, and that nothing else is."""
    counts = np.concatenate([fitted.weights.counts.flatten() for fitted in result.fitted])
    difference = max(distance_from_counted(result, models))
    check(
        bool((counts == 1).all()) and difference <= TOLERANCE and min(attempts(result)) > 1,
        "asynchronous: no update is lost or added twice, although a worker and the driver are killed",
        f"{(counts == 1).sum()} of {pushed(result)} were added exactly once, and their sum is what was"
        f" learned, to {difference:.0e}; attempts {attempts(result)}",
    )


def check_refused(result: Result, bad: int) -> None:
    """Check that an update that raises with the lock held fails only for the worker that pushed it."""
    refused = sum(worker.refused for worker in result.workers)
    check(
        0 < refused == bad,
        "asynchronous: an update that raises in the driver doesn't block others",
        f"{refused} of {bad} such updates raised, and {pushed(result)} others were taken",
    )


def check_lost_are_counted(result: Result, models: Sequence[Model]) -> None:
    """Check that lost updates are counted: the parameters are the sum of exactly the others."""
    counts = np.concatenate([fitted.weights.counts.flatten() for fitted in result.fitted])
    n_lost = int((counts == 0).sum())
    n_counted = int(counts.sum())
    difference = max(distance_from_counted(result, models))
    check(
        pushed(result) - n_lost == n_counted
        and counts.max() <= 1
        and difference <= TOLERANCE
        and min(attempts(result)) > 1,
        "hogwild: the parameters contain all pushed updates except the lost ones",
        f"{pushed(result)} - {n_lost} = {n_counted}, whose sum is what was learned, to {difference:.0e};"
        f" attempts {attempts(result)}",
    )


def check_accuracy(mode: str, result: Result, models: Sequence[Model], held_out: Data) -> None:
    """Check that the models recognise enough of the held-out digits, whatever the seed."""
    accuracies = [
        networks.accuracy(model.widths, fitted.weights.parameters, held_out)
        for model, fitted in zip(models, result.fitted, strict=True)
    ]
    check(
        min(accuracies) >= WANTED_ACCURACY,
        f"{mode}: at least {WANTED_ACCURACY} of {len(held_out)} held-out digits are recognised",
        " ".join(f"{accuracy:.3f}" for accuracy in accuracies),
    )


def check_spark(by_spark: Result, by_list: Result) -> None:
    """Check that it makes no difference where the partitions come from."""
    ends = [result.fitted[0].weights.parameters for result in (by_spark, by_list)]
    check(
        bool((ends[0] == ends[1]).all()),
        "partitions of an RDD train the same model as a list of them, bit for bit",
        f"{(ends[0] == ends[1]).sum()} of {len(ends[0])} parameters are equal",
    )


def attempts(result: Result) -> list[int]:
    """Return the last attempts of the worker and the driver that should have been killed."""
    return [result.workers[VICTIM].attempt, result.fitted[-1].attempt]


def pushed(result: Result) -> int:
    """Return how many updates the drivers have taken."""
    return sum(sum(fitted.pushed) for fitted in result.fitted)


def distance_from_counted(result: Result, models: Sequence[Model]) -> list[float]:
    """Return, for each model, how far it is from the sum of the updates that its counts include."""
    distances = []
    for i, (model, fitted) in enumerate(zip(models, result.fitted, strict=True)):
        counted = model.parameters.copy()
        for worker, counts in zip(result.workers, fitted.weights.counts, strict=True):
            counted += counts.astype(float) @ worker.deltas[i]
        distances.append(float(np.abs(fitted.weights.parameters - counted).max()))
    return distances
