"""A worker: it trains on its partition, and exchanges weights with the driver. The same in all modes.

A worker that dies leaves nothing behind. Its next attempt asks the driver which of its updates comes next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.elephas.algorithm import Partition, train
from examples.systems.elephas.driver import Driver, Fitted

VICTIM = 1


class Worked(NamedTuple):
    """The result of a worker."""

    deltas: Array  # the updates that it has pushed, for the checks
    attempt: int
    fitted: Fitted  # the state of the driver at the end


def work(
    partition: Partition,
    rounds: Sequence[range],
    learning_rate: float,
    driver: lp.CourierClient[Driver],
    dies: bool,
) -> Worked:
    """Train until all rounds are done. If `dies`, the second worker dies half-way, before a push."""
    me = lp.current()
    worker = me.replica_index
    deltas: dict[int, Array] = me.load(default={})
    for number in range(driver.clock(worker), len(rounds)):
        parameters = driver.pull(worker)
        delta = train(partition, parameters, rounds[number], learning_rate) - parameters
        if dies and worker == VICTIM and me.attempt == 1 and number == len(rounds) // 2:
            me.save(deltas)  # only the checks need this, not the training
            lp.testing.crash()
        driver.push(worker, number, delta)
        deltas[number] = delta
    lp.barrier("all have pushed")
    return Worked(np.stack([deltas[i] for i in range(len(rounds))]), me.attempt, driver.fitted())
