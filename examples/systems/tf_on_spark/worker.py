"""A worker: it registers, waits for the cluster, and runs the user's `main_fun` on its feed."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from time import time
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.tf_on_spark.algorithm import DataFeed, Row, Source
from examples.systems.tf_on_spark.job import Job
from examples.systems.tf_on_spark.parameter_server import Ledger
from examples.systems.tf_on_spark.reservation import Reservations


class Worked(NamedTuple):
    """The result of a worker.

    Attributes:
        result: The result of `main_fun`.
        stats: The statistics of the worker's queue, if it has one.
        terminated_at: The time at which the worker had enough; None if it took all of its rows.
        ledger: The rows of each step. Only the first worker of a cluster that trains has it.
    """

    result: Any
    stats: lp.QueueStats | None
    terminated_at: float | None
    ledger: Ledger
    attempt: int


class Pushed(Source):
    """InputMode.SPARK: rows that feeders push into the worker's queue.

    Args:
        replies: A queue for the results of each feeder's rows.
        kill_at: The batch at which the worker dies. The first worker dies before it takes this batch, when
            the gradient of the batch before has been added, but its rows are not acknowledged yet. The others
            die after they have taken the batch.
    """

    def __init__(
        self, queue: lp.Queue[Row], replies: Sequence[lp.Queue[Any]], kill_at: int | None
    ) -> None:
        self._queue = queue
        self._replies = replies
        self._n_batches = 0
        self._kill_at = kill_at
        self.terminated_at: float | None = None

    def take(self, n: int) -> list[Row]:
        self._n_batches += 1
        is_due = self._n_batches == self._kill_at and lp.current().attempt == 1
        if is_due and lp.current().replica_index == 0:
            lp.testing.crash()
        try:
            rows = self._queue.get_many(n, at_least=n)
        except lp.QueueClosed:
            return []
        if is_due:
            lp.testing.crash()
        return rows

    def cancel(self) -> None:
        self.terminated_at = time()
        self._queue.cancel()

    def answer(self, rows: Sequence[Row], results: Sequence[Any]) -> None:
        for feeder, replies in enumerate(self._replies):
            replies.put_many(
                (row.id, result)
                for row, result in zip(rows, results, strict=True)
                if row.id[1] % len(self._replies) == feeder
            )


class Read(Source):
    """InputMode.TENSORFLOW: rows that the worker reads itself."""

    terminated_at: float | None = None

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: Iterator[Row] = iter(rows)

    def take(self, n: int) -> list[Row]:
        return list(islice(self._rows, n))

    def cancel(self) -> None:
        self.terminated_at = time()

    def answer(self, rows: Sequence[Row], results: Sequence[Any]) -> None:
        raise NotImplementedError(
            "rows that a worker has read itself have nobody who waits for results"
        )


def work(
    job: Job,
    reservations: lp.CourierClient[Reservations],
    queue: lp.Queue[Row] | None,
    replies: Sequence[lp.Queue[Any]],
) -> Worked | None:
    """Run the user's code when all nodes are there."""
    me = lp.current()
    if me.replica_index == job.faults.absent:
        lp.wait_for_stop()
        return None
    cluster = lp.submit(reservations.register, "worker", me.replica_index, queue).result()
    ps = cluster["ps"][0] if "ps" in cluster else None
    ids = ps.begin(me.replica_index) if ps else ()
    source: Pushed | Read
    if queue is not None:
        source = Pushed(queue, replies, job.faults.kill_at)
    else:
        source = Read(job.rows_of(me.replica_index))
    with ExitStack() as stack:
        for each in replies:
            stack.enter_context(each.producer())
        args = replace(job.args, worker=me.replica_index, ps=ps)
        result = job.main_fun(args, DataFeed(source, ids))
    ledger = ps.trained().ledger if ps and me.replica_index == 0 else []
    stats = None if queue is None else queue.stats()
    return Worked(result, stats, source.terminated_at, ledger, me.attempt)
