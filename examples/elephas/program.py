"""The graph: workers with a partition each, and a driver for each model that they train.

worker × n ──what training has changed──▶ driver
     ▲────────────parameters──────────────┘

The mode decides only what the driver does with an update; the workers' code is the same in all. A worker
that dies has left nothing behind: started again, it asks the driver which of its updates is the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.digits import Array
from examples.elephas.algorithm import Model, Partition, rounds, train
from examples.elephas.driver import MODES, Driver, Fitted

VICTIM = 1


class Worked(NamedTuple):
    """What a worker returns, for the checks.

    Attributes:
        deltas: What it has pushed, by model and number.
        refused: How many updates it has pushed that do not fit, and was refused.
        attempt: 2 if it was killed once.
        fitted: What came of each model.
    """

    deltas: Array
    refused: int
    attempt: int
    fitted: list[Fitted]


class Faults(NamedTuple):
    """What goes wrong on purpose.

    Attributes:
        kills: Half-way through the last model a worker is killed, and its driver a little later.
        bad_every: Of which number of updates each is first pushed as one that does not fit; never, if 0.
    """

    kills: bool = False
    bad_every: int = 0


NO_FAULTS = Faults()


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
    shape = len(models), len(rounds), len(models[0].parameters)
    deltas, refused = me.load(default=(np.zeros(shape), 0))
    for i, (model, driver) in enumerate(zip(models, drivers, strict=True)):
        for number in range(driver.clock(worker), len(rounds)):
            parameters = driver.pull(worker)
            trained = train(model, partition, parameters, rounds[number])
            delta = deltas[i, number] = trained - parameters
            if faults.kills and (i, number, worker) == victim and me.attempt == 1:
                me.save((deltas, refused))  # what it has pushed, only for the checks
                lp.testing.crash()
            if faults.bad_every and number % faults.bad_every == 0:
                try:
                    driver.push(worker, number, delta[:-1])
                except ValueError:
                    refused += 1
            driver.push(worker, number, delta)
    lp.barrier("fitted")
    return Worked(deltas, refused, me.attempt, lp.broadcast(drivers).fitted())


class Result(NamedTuple):
    """What workers have returned, and what has gone over the edges."""

    workers: list[Worked]
    edges: lp.edges.Edges

    @property
    def fitted(self) -> list[Fitted]:
        """What came of each model."""
        return self.workers[0].fitted


def fit(
    models: Sequence[Model],
    partitions: Sequence[Partition],
    steps: int,
    frequency: str = "epoch",
    mode: str = "asynchronous",
    faults: Faults = NO_FAULTS,
) -> Result:
    """Train models on partitions, with a worker for each of these."""
    of_worker = rounds(frequency, steps, partitions[0].n_batches)
    kills = [False] * (len(models) - 1) + [faults.kills]
    program = lp.Program("elephas")
    with program.group("driver", restart=lp.RestartPolicy(), serves_until="program"):
        drivers = [
            program.add_node(
                lp.CourierNode(MODES[mode], model, len(partitions), len(of_worker), dies)
            )
            for model, dies in zip(models, kills, strict=True)
        ]
    with program.group("worker", restart=lp.RestartPolicy()):
        for partition in partitions:
            program.add_node(lp.PyNode(work, models, partition, of_worker, drivers, faults))
    running = lp.launch(program)
    workers = running.results("worker")
    running.wait()
    return Result(workers, running.edges())
