"""A shard of a parameter server: part of what is learned, and how many updates of each worker are in it.

A shard may be killed at any moment, and must count every update exactly once. So it saves itself before it
answers: what was acknowledged is on disk. A call that was not answered is made again, by courier, if its
method is `@lp.idempotent`; the number of the update then says whether it is in already.
"""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np

import launchpad as lp

Value = TypeVar("Value")


class ShardState(Generic[Value]):
    """Goes on where it had answered, in whichever attempt.

    Args:
        first: The value it begins with, if it has not begun before.
        workers: How many send updates.

    Attributes:
        value: What the shard holds: an array, or whatever pickles.
        applied: The clocks: of each worker, how many updates are in the value.
        staleness: The most updates that came between a worker's `get` and its own next update.
        changed: The lock of all three; those who wait are told when `applied` changes.
    """

    def __init__(self, first: Value, workers: int) -> None:
        begin = first, np.zeros(workers, np.int64)
        self.value, self.applied = lp.current().load(default=begin)
        self.staleness = 0
        self._n_seen = np.full(workers, self.applied.sum())  # by each worker, when it last looked
        self.changed = threading.Condition()
        if lp.current().is_resumed:
            print(f"resumes after {self.applied.sum()} updates")

    @contextmanager
    def update(self, worker: int, number: int) -> Iterator[bool]:
        """Hold the lock; say whether the update is new, and save the value at the end if it is.

        An update that raises does not count: it must not have changed the value before.
        """
        with self.changed:
            if number > self.applied[worker]:
                has = f"has {self.applied[worker]} updates of worker {worker}"
                raise ValueError(f"this shard {has}: number {number} cannot be the next")
            is_new = number == self.applied[worker]
            yield is_new
            if is_new:
                self.staleness = max(self.staleness, int(self.applied.sum() - self._n_seen[worker]))
                self.count(worker)

    def count(self, workers: int | slice) -> None:
        """Save the value, which has one update more of these."""
        self.applied[workers] += 1
        lp.current().save((self.value, self.applied), keep=1)
        self.changed.notify_all()

    def get(self, worker: int) -> Value:
        """Return a copy of the value, for this worker."""
        with self.changed:
            self._n_seen[worker] = self.applied.sum()
            return copy.deepcopy(self.value)

    def wait(self, clock: int, staleness: float = 0) -> None:
        """With the lock: wait until every worker's clock is at most `staleness` behind this one."""
        self.changed.wait_for(lambda: self.applied.min() >= clock - staleness)
