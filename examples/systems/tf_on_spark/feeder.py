"""A feeder: what a Spark task does with partitions, and with the results that come back."""

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
"""By partition: positions and their results, as they have come."""


class Fed(NamedTuple):
    """What a feeder returns.

    Attributes:
        told_at: When it was told that its worker had enough, if it did not come to its end before.
    """

    told_at: float | None
    results: Results
    attempt: int


def feed(
    job: Job, reservations: lp.CourierClient[Reservations], replies: Sequence[lp.Queue[Any]]
) -> Fed:
    """Push partitions to a worker, until all are through or it has enough."""
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
            given = rows(epoch, partition, job.partitions[partition])
            victim = (0, 1, 1) if job.faults.kill_at else None
            if (me.replica_index, number, me.attempt) == victim:
                queue.put_many(islice(given, 100))
                lp.testing.crash()
            if queue.put_from(given) < len(job.partitions[partition]):
                told_at = time()
                break
            me.save(number + 1)  # started again, it begins with the partition that it was at
    return Fed(told_at, collecting.result(), me.attempt)


def collect(replies: Iterable[tuple[Id, Any]]) -> Results:
    """Return the results of this feeder's rows, until all workers have closed."""
    results: Results = {}
    for (_, partition, position), result in replies:
        results.setdefault(partition, []).append((position, result))
    return results
