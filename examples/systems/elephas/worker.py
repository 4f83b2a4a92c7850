"""A worker: it trains on its partition, and exchanges weights with a driver. The same in all modes.

A worker that dies leaves nothing behind. Its next attempt asks the driver which of its updates comes next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.elephas.algorithm import Model, Partition, train
from examples.systems.elephas.driver import Driver, Fitted

VICTIM = 1


class Faults(NamedTuple):
    """Faults that a run injects.

    Attributes:
        kills: If True, a worker is killed half-way through the last model, and the driver a little later.
        bad_every: Before each update whose number is a multiple of this, the worker pushes one that doesn't
            fit; 0 for none.
    """

    kills: bool = False
    bad_every: int = 0


class Worked(NamedTuple):
    """The result of a worker, for the checks.

    Attributes:
        deltas: The updates that it has pushed, by model and number.
        refused: How many of its updates the driver has refused, since they don't fit.
        attempt: 2 if the worker was killed once.
        fitted: The state of each model's driver at the end.
    """

    deltas: Array
    refused: int
    attempt: int
    fitted: list[Fitted]


def work(
    models: Sequence[Model],
    partition: Partition,
    rounds: Sequence[range],
    drivers: Sequence[lp.CourierClient[Driver]],
    faults: Faults,
) -> Worked:
    """Train the models, one after the other."""
    me = lp.current()
    worker = me.replica_index
    victim = (len(models) - 1, len(rounds) // 2, VICTIM)
    first_deltas = np.zeros((len(models), len(rounds), len(models[0].parameters)))
    deltas, refused = me.load(default=(first_deltas, 0))
    for i, (model, driver) in enumerate(zip(models, drivers, strict=True)):
        for number in range(driver.clock(worker), len(rounds)):
            parameters = driver.pull(worker)
            delta = train(model, partition, parameters, rounds[number]) - parameters
            if faults.kills and (i, number, worker) == victim and me.attempt == 1:
                me.save((deltas, refused))  # only the checks need this, not the training
                lp.testing.crash()
            if faults.bad_every and number % faults.bad_every == 0:
                refused += is_refused(driver, worker, number, delta[:-1])
            driver.push(worker, number, delta)
            deltas[i, number] = delta
    lp.barrier("all have pushed")
    return Worked(deltas, refused, me.attempt, lp.broadcast(drivers).fitted())


def is_refused(driver: lp.CourierClient[Driver], worker: int, number: int, bad: Array) -> bool:
    """Push an update that doesn't fit. Return True if the driver refuses it."""
    try:
        driver.push(worker, number, bad)
    except ValueError:
        return True
    return False
