"""A feeder: what a Spark task does with partitions, and with the results that come back."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from time import time
from typing import Any, NamedTuple

import launchpad as lp
from examples.tf_on_spark.algorithm import Id, Row, rows
from examples.tf_on_spark.job import Job
from examples.tf_on_spark.reservation import Reservations

Results = dict[int, list[tuple[int, Any]]]
"""By partition: positions and their results, as they have come."""


class Fed(NamedTuple):
    """What a feeder returns.

    Attributes:
        n_rows: How many rows it has put into its worker's queue.
        told_at: When it was told that this had enough, if it did not come to its end before.
    """

    n_rows: int
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
    n_rows, told_at = 0, None
    with queue.producer():
        for number in range(me.load(default=0), len(tasks)):
            epoch, partition = tasks[number]
            given = rows(epoch, partition, job.partitions[partition])
            n_put = queue.put_from(dying(given, number, job))
            n_rows += n_put
            if n_put < len(job.partitions[partition]):
                told_at = time()
                break
            me.save(number + 1)  # started again, it begins with the partition that it was at
    return Fed(n_rows, told_at, collecting.result(), me.attempt)


def dying(given: Iterator[Row], number: int, job: Job) -> Iterator[Row]:
    """Give these rows; the first feeder may be to die in the middle of its second partition."""
    me = lp.current()
    dies = job.faults.kill_at is not None and (me.replica_index, number, me.attempt) == (0, 1, 1)
    for row in given:
        if dies and row.id[2] == 100:
            lp.testing.crash()
        yield row


def collect(replies: Iterable[tuple[Id, Any]]) -> Results:
    """Return the results of this feeder's rows, until all workers have closed."""
    results: Results = {}
    for (_, partition, position), result in replies:
        results.setdefault(partition, []).append((position, result))
    return results
