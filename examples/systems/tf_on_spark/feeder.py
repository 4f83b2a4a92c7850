"""A feeder: it does with partitions, and with the results that come back, what a Spark task does."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from time import time
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.tf_on_spark.algorithm import Id, Row, rows
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.reservation import Reservations

Results = dict[int, list[tuple[int, Any]]]
"""By partition: positions and their results, in the order in which they came."""


class Fed(NamedTuple):
    """The result of a feeder.

    Attributes:
        told_at: The time when it learned that its worker had enough. None if it pushed all of its rows.
    """

    told_at: float | None
    results: Results
    attempt: int


def feed(
    job: Job, reservations: lp.CourierClient[Reservations], replies: Sequence[lp.Queue[Any]]
) -> Fed:
    """Push partitions to a worker, until all are pushed or the worker has enough."""
    me = lp.current()
    cluster = lp.submit(reservations.cluster).result()
    queue: lp.Queue[Row] = cluster["worker"][job.worker_of(me.replica_index)]
    own = range(me.replica_index, len(job.partitions), job.feeders)
    tasks = list(product(range(job.epochs), own))
    collecting = ThreadPoolExecutor(1).submit(collect, replies[me.replica_index] if replies else ())
    told_at = None
    with queue.producer():
        for number in range(me.load(default=0), len(tasks)):
            epoch, partition = tasks[number]
            partition_rows = rows(epoch, partition, job.partitions[partition])
            victim = (0, 1, 1) if job.faults.kill_at else None
            if (me.replica_index, number, me.attempt) == victim:
                queue.put_many(islice(partition_rows, 100))
                lp.testing.crash()
            if queue.put_from(partition_rows) < len(job.partitions[partition]):
                told_at = time()
                break
            me.save(number + 1)  # a new attempt begins with the partition that this one was pushing
    return Fed(told_at, collecting.result(), me.attempt)


def collect(replies: Iterable[tuple[Id, Any]]) -> Results:
    """Return the results of this feeder's rows, until all workers have closed."""
    results: Results = {}
    for (_, partition, position), result in replies:
        results.setdefault(partition, []).append((position, result))
    return results
