"""The graph: a driver that dispatches tasks, and executors that get blocks from each other.

driver ──tasks──▶ executor × N, with its blocks ◀──blocks──▶ all other executors
"""

from collections.abc import Sequence

import numpy as np

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.big_dl.algorithm import Jobs, Task
from examples.systems.big_dl.driver import drive
from examples.systems.big_dl.executor import Executor


def make_program(
    problem: Problem,
    group: int | None = None,
    momentum: float = 0.0,
    executors: int | None = None,
    deadly: Sequence[Task] = (),
) -> lp.Program:
    """Return the graph: driver → executors, each of which has an edge to all others.

    Args:
        group: How many iterations the driver dispatches together. None: it dispatches each job by itself.
        executors: The number of executors, by default one for each worker of the problem.
        deadly: Tasks in which executors die, once.
    """
    executors = executors or problem.workers
    nodes = [lp.CourierNode(Executor) for _ in range(executors)]
    peers = [node.create_handle() for node in nodes]
    slices = np.array_split(problem.first_parameters, executors)
    program = lp.Program("big_dl")
    with program.group("executor", restart=lp.RestartPolicy()):
        for node, first in zip(nodes, slices, strict=True):
            node.configure(Jobs(problem, momentum, executors), first, peers, deadly)
            program.add_node(node)
    program.add_node(lp.PyNode(drive, peers, problem.steps, group), label="driver")
    return program
