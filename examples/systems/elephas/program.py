"""The graph: workers with a partition each, and a driver with the model that they train.

worker × n ──what training has changed──▶ driver
     ▲─────────────parameters─────────────┘

The mode decides only the class of the driver.
"""

from collections.abc import Sequence
from typing import NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.elephas.algorithm import Partition, partitions_of
from examples.systems.elephas.driver import MODES
from examples.systems.elephas.worker import Worked, work


class Result(NamedTuple):
    """The results of the workers, and the traffic over the edges."""

    workers: list[Worked]
    edges: lp.edges.Edges

    @property
    def parameters(self) -> Array:
        return self.workers[0].fitted.weights.parameters


def fit(
    problem: Problem,
    mode: str = "asynchronous",
    every: int = 1,
    partitions: Sequence[Partition] = (),
    dies: bool = False,
) -> Result:
    """Train on partitions, by default equal shares of the problem's data.

    Args:
        mode: What the driver does with an update: `synchronous`, `asynchronous` or `hogwild`.
        every: How many batches a worker trains on between two exchanges with the driver.
        dies: If True, a worker and the driver are killed.
    """
    partitions = partitions or partitions_of(problem)
    steps = range(problem.steps)
    rounds = [steps[first : first + every] for first in steps[::every]]
    program = lp.Program("elephas")
    node = lp.CourierNode(MODES[mode], problem.first_parameters, len(partitions), len(rounds), dies)
    with program.group("driver", restart=lp.RestartPolicy()):
        driver = program.add_node(node)
    with program.group("worker", restart=lp.RestartPolicy()):
        for partition in partitions:
            program.add_node(
                lp.PyNode(work, partition, rounds, problem.learning_rate, driver, dies)
            )
    running = lp.launch(program)
    workers = running.results("worker")
    running.wait()
    return Result(workers, running.edges())
