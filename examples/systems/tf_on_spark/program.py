"""The graph: all nodes know the reservation server, and learn from it where the others are.

    ps, worker × n ──register──▶ reservations ◀──where are the workers' queues?── feeder × m

    feeder × m ──rows──▶ queue of worker i ──▶ worker i ──gradient──▶ ps
         ▲                                        │    ◀─parameters──
         └────── queue of feeder j ◀──results─────┘

Without feeders, the workers read their rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples.systems.tf_on_spark.algorithm import Row
from examples.systems.tf_on_spark.feeder import Fed, feed
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.main_fun import train
from examples.systems.tf_on_spark.parameter_server import ParameterServer
from examples.systems.tf_on_spark.reservation import Reservations
from examples.systems.tf_on_spark.worker import Worked, work


def make_program(job: Job) -> lp.Program:
    """Return the cluster that runs a job. It has a ps if the job trains, and feeders if rows are pushed."""
    program = lp.Program("tf-on-spark")
    expected = {"ps": 1} if job.main_fun is train else {}
    reservations = program.add_node(
        lp.CourierNode(Reservations, {**expected, "worker": job.workers}, job.limit_s),
        label="reservations",
    )
    if expected:
        node = lp.CourierNode(ParameterServer)
        node.configure(job.args, job.workers, reservations, node.create_handle())
        with program.group("ps", serves_until="program"):
            program.add_node(node)
    inputs: list[Any] = [None] * job.workers
    outputs: list[Any] = []
    if job.is_pushed:
        with program.group("input"):
            inputs = [
                program.add_node(lp.QueueNode[Row](job.maxsize, producers=n))
                for n in job.feeders_of
            ]
    if job.answers:
        with program.group("output"):
            for _ in range(job.feeders):
                outputs.append(program.add_node(lp.QueueNode[Any](job.maxsize, job.workers)))
    with program.group("worker", restart=lp.RestartPolicy()):
        for queue in inputs:
            program.add_node(lp.PyNode(work, job, reservations, queue, outputs))
    if job.is_pushed and job.has_feeders:
        with program.group("feeder", restart=lp.RestartPolicy()):
            for _ in range(job.feeders):
                program.add_node(lp.PyNode(feed, job, reservations, outputs))
    return program


class Ran(NamedTuple):
    """The result of a job."""

    job: Job
    workers: list[Worked]
    feeders: list[Fed]

    @property
    def parameters(self) -> Array:
        """Return the learned parameters."""
        parameters: Array = self.workers[0].result
        return parameters


def run(job: Job, outside: Callable[[lp.Running], None] = lambda _: None) -> Ran:
    """Run a job on a cluster of its own, and call `outside` while it runs."""
    running = lp.launch(make_program(job), preload=["numpy"])
    outside(running)
    workers = running.results("worker")
    has_feeders = job.is_pushed and job.has_feeders
    feeders = running.results("feeder") if has_feeders else []
    running.wait()
    return Ran(job, workers, feeders)
