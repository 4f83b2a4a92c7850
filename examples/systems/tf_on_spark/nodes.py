"""The nodes that run a job: workers, and feeders that push rows to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, product
from typing import Any, NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples.systems.tf_on_spark.algorithm import Context, Row
from examples.systems.tf_on_spark.servers import Ledger, Reservations


@dataclass(frozen=True)
class Job:
    """A `main_fun(args, context)`, and the partitions of its rows, which may be anything.

    Attributes:
        parameters: The parameters that the ps begins with.
        feeders: The nodes that push, each to one worker.
        is_pushed: True is InputMode.SPARK: rows are pushed. False is InputMode.TENSORFLOW: workers read them.
        has_feeders: False if something outside of the cluster pushes, for as many producers.
        maxsize: How many rows may wait in a worker's queue.
        limit_s: How long nodes wait for each other. A cluster may take minutes to start a dozen pods.
        absent: How many more workers the others wait for.
        kill_at: The batch at which each worker dies, once: the first one before it takes the batch, the
            others when they have taken it. The first feeder dies in its second partition.
    """

    main_fun: Callable[[Any, Context], Any]
    args: Any
    partitions: Sequence[Sequence[Any]]
    parameters: Array
    epochs: int = 1
    workers: int = 2
    feeders: int = 3
    is_pushed: bool = True
    has_feeders: bool = True
    maxsize: int = 64
    limit_s: float = 300
    absent: int = 0
    kill_at: int | None = None

    def worker_of(self, partition: int) -> int:
        """Return the worker of a partition. Each feeder serves one worker, so it never delays another."""
        return partition % self.feeders % self.workers


def rows(epoch: int, number: int, partition: Sequence[Any]) -> Iterator[Row]:
    """Yield the rows of a partition with their ids."""
    return (Row((epoch, number, i), value) for i, value in enumerate(partition))


class Worked(NamedTuple):
    """The result of a worker. Only the first worker has the ledger."""

    result: Any
    attempt: int
    queue: lp.QueueStats | None
    ledger: Ledger


def work(
    job: Job, reservations: lp.CourierClient[Reservations], queue: lp.Queue[Row] | None
) -> Worked:
    """Run the user's code when all nodes are there."""
    me = lp.current()
    worker = me.replica_index
    cluster = lp.submit(reservations.register, f"worker {worker}", queue).result()
    numbers = [n for n in range(len(job.partitions)) if job.worker_of(n) == worker]
    parts = product(range(job.epochs), numbers)
    own_rows = chain.from_iterable(rows(epoch, n, job.partitions[n]) for epoch, n in parts)
    batches = count(1)

    def take(n: int) -> list[Row]:
        dies = next(batches) == job.kill_at and me.attempt == 1
        if dies and worker == 0:
            lp.testing.crash()  # the batch before is in the model, but not acknowledged
        try:
            taken = queue.get_many(n, at_least=n) if queue else list(islice(own_rows, n))
        except lp.QueueClosed:
            return []
        if dies:
            lp.testing.crash()  # the batch is taken, but not in the model
        return taken

    def cancel() -> None:
        queue.cancel() if queue else list(own_rows)

    ps = cluster["ps"]
    result = job.main_fun(job.args, Context(worker, take, cancel, ps))
    ledger = ps.ledger() if worker == 0 else []
    return Worked(result, me.attempt, queue.stats() if queue else None, ledger)


def feed(job: Job, reservations: lp.CourierClient[Reservations]) -> int:
    """Push partitions, until all are pushed or their worker has enough. Return the attempt's number."""
    me = lp.current()
    cluster = lp.submit(reservations.cluster).result()
    queue: lp.Queue[Row] = cluster[f"worker {job.worker_of(me.replica_index)}"]
    own = range(me.replica_index, len(job.partitions), job.feeders)
    tasks = list(product(range(job.epochs), own))
    with queue.producer():
        for task in range(me.load(default=0), len(tasks)):
            epoch, number = tasks[task]
            partition = job.partitions[number]
            if job.kill_at and me.attempt == 1 and number == job.feeders:
                queue.put_from(rows(epoch, number, partition[: len(partition) // 4]))
                lp.testing.crash()
            if queue.put_from(rows(epoch, number, partition)) < len(partition):
                break
            me.save(task + 1)  # a new attempt begins with the partition that this one was pushing
    return me.attempt
