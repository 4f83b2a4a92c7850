"""The graph: a driver that dispatches tasks, and executors that get blocks from each other.

driver ──tasks──▶ executor × N, with a block store each ◀──blocks──▶ all other executors
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.big_dl.algorithm import SYNCHRONIZATION, Block, Jobs, Task, dispatches
from examples.systems.big_dl.executor import Executor


class Trained(NamedTuple):
    """The result of the driver.

    Attributes:
        made: How many tasks each executor has run, in its last attempt.
        attempts: The number of that attempt.
        seconds: The time of an iteration.
    """

    parameters: Array
    made: list[int]
    attempts: list[int]
    seconds: float


class Result(NamedTuple):
    """The result of the driver, and the traffic over the edges."""

    trained: Trained
    edges: lp.edges.Edges


def drive(
    executors: Sequence[lp.CourierClient[Executor]], iterations: int, group: int | None
) -> Trained:
    """Dispatch the tasks of all iterations, then put the slices together."""
    indices = range(len(executors))
    all_of = lp.scatter(executors)
    each_of = lp.broadcast(executors)
    each_of.made()  # they have all started: the clock may begin
    began = time.perf_counter()
    for jobs in dispatches(iterations, group):
        tasks = [[Task(job, iteration, i) for job, iteration in jobs] for i in indices]
        all_of.execute(lp.parts(tasks))
    seconds = (time.perf_counter() - began) / iterations
    last = [Block(Task(SYNCHRONIZATION, iterations - 1, i), 0) for i in indices]
    n_made, attempts = zip(*each_of.made(), strict=True)
    parameters = np.concatenate(all_of.get(lp.parts(last)))
    return Trained(parameters, list(n_made), list(attempts), seconds)


def fit(
    problem: Problem,
    executors: int,
    group: int | None = None,
    momentum: float = 0.0,
    deadly: Sequence[Task] = (),
) -> Result:
    """Train with a number of executors.

    Args:
        group: How many iterations the driver dispatches together. None: it dispatches each job by itself.
        deadly: Tasks in which executors die, once.
    """
    running = lp.launch(
        make_program(problem, executors, group, momentum, deadly), preload=["numpy"]
    )
    (trained,) = running.results("driver")
    running.wait()
    return Result(trained, running.edges())


def make_program(
    problem: Problem,
    executors: int,
    group: int | None = None,
    momentum: float = 0.0,
    deadly: Sequence[Task] = (),
) -> lp.Program:
    """Return the graph: driver → executors, each of which has an edge to all others."""
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
