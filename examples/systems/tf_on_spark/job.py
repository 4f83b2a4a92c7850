"""What is run on a cluster, by whom, and what goes wrong on purpose."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from examples._shared.digits import Digits
from examples.systems.tf_on_spark.algorithm import DataFeed, Row, rows
from examples.systems.tf_on_spark.main_fun import Args, train


class Faults(NamedTuple):
    """What goes wrong on purpose.

    Attributes:
        absent: A worker that does not register.
        kill_at: At which batch both workers die, once; the first feeder dies in its second partition.
    """

    absent: int | None = None
    kill_at: int | None = None


@dataclass(frozen=True)
class Job:
    """A `main_fun`, and the data for it.

    Attributes:
        is_pushed: InputMode.SPARK: feeders push the partitions. Else InputMode.TENSORFLOW: workers read them.
        has_feeders: Whether feeders of the cluster push. Else something outside of it does.
        answers: Whether there are results of rows, which go back to their feeders.
        limit_s: How long nodes wait for each other at the beginning, from the first that is there; a cluster
          may take minutes to start a dozen of pods.
        maxsize: How many rows wait in a queue at most.
    """

    args: Args
    partitions: Sequence[Digits]
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
        """Return which worker has a partition. A feeder is for one: where it waits, it delays no other."""
        return partition % self.feeders % self.workers

    def rows_of(self, worker: int) -> Iterator[Row]:
        """Give all rows of a worker, in order."""
        for epoch in range(self.epochs):
            for number, digits in enumerate(self.partitions):
                if self.worker_of(number) == worker:
                    yield from rows(epoch, number, digits)

    @property
    def feeders_of(self) -> list[int]:
        """How many feeders each worker has."""
        return [len(range(worker, self.feeders, self.workers)) for worker in range(self.workers)]

    @property
    def n_rows(self) -> int:
        """How many there are in all epochs."""
        return self.epochs * sum(map(len, self.partitions))
