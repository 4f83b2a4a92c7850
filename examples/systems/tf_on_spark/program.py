"""The graph: nodes know the reservation server, and learn from it where the others are.

    ps, worker × n ──register──▶ reservations ◀──where are the workers' queues?── feeder × m

    feeder × m ──rows──▶ queue of worker i ──▶ worker i ──change──▶ ps
                                                    ◀──parameters──

Without feeders, the workers read their rows themselves.
"""

from __future__ import annotations

from typing import Any

import launchpad as lp
from examples.systems.tf_on_spark.algorithm import Row
from examples.systems.tf_on_spark.nodes import Job, feed, work
from examples.systems.tf_on_spark.servers import ParameterServer, Reservations


def make_program(job: Job) -> lp.Program:
    """Return the cluster that runs a job. It has queues and feeders if rows are pushed."""
    program = lp.Program("tf-on-spark")
    expected = ["ps", *(f"worker {i}" for i in range(job.workers + job.absent))]
    node = lp.CourierNode(Reservations, expected, job.limit_s)
    reservations = program.add_node(node, label="reservations")
    ps = lp.CourierNode(ParameterServer)
    ps.configure(job.parameters, job.workers, reservations, ps.create_handle())
    with program.group("ps", serves_until="program"):
        program.add_node(ps)
    queues: list[Any] = [None] * job.workers
    if job.is_pushed:
        with program.group("input"):
            for worker in range(job.workers):
                n_feeders = len(range(worker, job.feeders, job.workers))
                queues[worker] = program.add_node(lp.QueueNode[Row](job.maxsize, n_feeders))
    with program.group("worker", restart=lp.RestartPolicy()):
        for queue in queues:
            program.add_node(lp.PyNode(work, job, reservations, queue))
    if job.is_pushed and job.has_feeders:
        with program.group("feeder", restart=lp.RestartPolicy()):
            for _ in range(job.feeders):
                program.add_node(lp.PyNode(feed, job, reservations))
    return program
