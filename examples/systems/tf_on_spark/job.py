"""The job of a cluster: its code, its data, its nodes, and the faults that it injects."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from examples._shared.data import Data
from examples.systems.tf_on_spark.algorithm import DataFeed, Row, rows
from examples.systems.tf_on_spark.main_fun import Args, train


class Faults(NamedTuple):
    """Faults that a job injects.

    Attributes:
        absent: A worker that doesn't register.
        kill_at: The batch at which both workers die, once. Then the first feeder dies in its second
            partition, too.
    """

    absent: int | None = None
    kill_at: int | None = None


@dataclass(frozen=True)
class Job:
    """A `main_fun`, and the data for it.

    Attributes:
        is_pushed: True is InputMode.SPARK: feeders push the partitions. False is InputMode.TENSORFLOW:
            workers read them.
        has_feeders: True if feeders of the cluster push. Else something outside of it does.
        answers: True if rows have results, which go back to their feeders.
        limit_s: How long nodes wait for each other at the beginning. A cluster may take minutes to start a
            dozen pods.
        maxsize: How many rows may wait in a queue.
    """

    args: Args
    partitions: Sequence[Data]
    main_fun: Callable[[Args, DataFeed], Any] = train
    epochs: int = 1
    is_pushed: bool = True
    has_feeders: bool = True
    answers: bool = False
    workers: int = 2
    feeders: int = 3
    limit_s: float = 300
    maxsize: int = 64
    faults: Faults = field(default_factory=Faults)

    def worker_of(self, partition: int) -> int:
        """Return the worker of a partition. Each feeder serves one worker, so it never delays another."""
        return partition % self.feeders % self.workers

    def rows_of(self, worker: int) -> Iterator[Row]:
        """Yield all rows of a worker, in order."""
        for epoch in range(self.epochs):
            for number, digits in enumerate(self.partitions):
                if self.worker_of(number) == worker:
                    yield from rows(epoch, number, digits)

    @property
    def feeders_of(self) -> list[int]:
        """Return the number of feeders of each worker."""
        return [len(range(worker, self.feeders, self.workers)) for worker in range(self.workers)]

    @property
    def n_rows(self) -> int:
        """Return the number of rows in all epochs."""
        return self.epochs * sum(map(len, self.partitions))
