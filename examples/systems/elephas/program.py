"""The graph: workers with a partition each, and a driver for each model that they train.

worker × n ──what training has changed──▶ driver
     ▲─────────────parameters─────────────┘

The mode decides only the class of the driver.
"""

from collections.abc import Sequence
from typing import NamedTuple

import launchpad as lp
from examples.systems.elephas.algorithm import Model, Partition, rounds
from examples.systems.elephas.driver import MODES, Fitted
from examples.systems.elephas.worker import Faults, Worked, work

NO_FAULTS = Faults()


class Result(NamedTuple):
    """The results of the workers, and the traffic over the edges."""

    workers: list[Worked]
    edges: lp.edges.Edges

    @property
    def fitted(self) -> list[Fitted]:
        """Return the state of each model's driver at the end."""
        return self.workers[0].fitted


def fit(
    models: Sequence[Model],
    partitions: Sequence[Partition],
    steps: int,
    frequency: str = "epoch",
    mode: str = "asynchronous",
    faults: Faults = NO_FAULTS,
) -> Result:
    """Train models on partitions, one after the other, by as many workers as there are partitions.

    Args:
        steps: How many batches each worker trains a model on.
        frequency: After what a worker exchanges weights with the driver: `batch` or `epoch`.
        mode: What the driver does with an update: `synchronous`, `asynchronous` or `hogwild`.
        faults: The faults to inject.
    """
    of_worker = rounds(frequency, steps, partitions[0].n_batches)
    kills = [False] * (len(models) - 1) + [faults.kills]
    program = lp.Program("elephas")
    with program.group("driver", restart=lp.RestartPolicy()):
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
