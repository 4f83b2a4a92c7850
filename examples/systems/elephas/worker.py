"""A worker: it trains on its partition, and exchanges weights with a driver. The same in all modes.

One that dies has left nothing behind: started again, it asks the driver which of its updates is the next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.digits import Array
from examples.systems.elephas.algorithm import Model, Partition, train
from examples.systems.elephas.driver import Driver, Fitted

VICTIM = 1


class Faults(NamedTuple):
    """What goes wrong on purpose.

    Attributes:
        kills: Half-way through the last model a worker is killed, and the driver a little later.
        bad_every: Before each update of which a multiple of this is the number one is pushed that does not
            fit; 0 for none.
    """

    kills: bool = False
    bad_every: int = 0


class Worked(NamedTuple):
    """What a worker returns, for the checks.

    Attributes:
        deltas: What it has pushed, by model and number.
        refused: How many updates it has pushed that do not fit, and was told so.
        attempt: 2 if it was killed once.
        fitted: What has become of each model.
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
    worker, victim = me.replica_index, (len(models) - 1, len(rounds) // 2, VICTIM)
    first_deltas = np.zeros((len(models), len(rounds), len(models[0].parameters)))
    deltas, refused = me.load(default=(first_deltas, 0))
    for i, (model, driver) in enumerate(zip(models, drivers, strict=True)):
        for number in range(driver.clock(worker), len(rounds)):
            parameters = driver.pull(worker)
            delta = train(model, partition, parameters, rounds[number]) - parameters
            if faults.kills and (i, number, worker) == victim and me.attempt == 1:
                me.save((deltas, refused))  # training needs none of it; the checks do
                lp.testing.crash()
            if faults.bad_every and number % faults.bad_every == 0:
                refused += is_refused(driver, worker, number, delta[:-1])
            driver.push(worker, number, delta)
            deltas[i, number] = delta
    lp.barrier("all have pushed")
    return Worked(deltas, refused, me.attempt, lp.broadcast(drivers).fitted())


def is_refused(driver: lp.CourierClient[Driver], worker: int, number: int, bad: Array) -> bool:
    """Push an update that does not fit; return whether the driver says so."""
    try:
        driver.push(worker, number, bad)
    except ValueError:
        return True
    return False
