"""A shard of a parameter server: part of what is learned, and how many updates of each worker are in it.

A shard may be killed at any moment, and must count every update exactly once. So it saves itself before it
answers: what was acknowledged is on disk. A call that was not answered is made again, by courier, if its
method is `@lp.idempotent`; the number of the update then says whether it is in already.
"""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

import launchpad as lp

Value = TypeVar("Value")
Given = TypeVar("Given")


class ShardState(Generic[Value]):
    """Goes on where it had answered, in whichever attempt.

    Args:
        first: The value it begins with, if it has not begun before.
        workers: How many send updates.

    Attributes:
        value: What the shard holds: an array, or whatever pickles.
        applied: The clocks: of each worker, how many updates are in the value.
        staleness: The most updates of others, in this attempt, between what a worker saw and its next one.
        changed: The lock of all three, and the condition that `applied` has changed.
    """

    def __init__(self, first: Value, workers: int) -> None:
        begin = first, np.zeros(workers, np.int64)
        self.value, self.applied = lp.current().load(default=begin)
        self.staleness = 0
        self._first = self.applied.copy()
        self._n_seen: dict[tuple[int, int], int] = {}  # updates of others, by worker and its update
        self.changed = threading.Condition()
        self._given: dict[int, Any] = {}
        self._stop = lp.stop_event()
        lp.register_stop_handler(self._wake)
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
                began = self._others(self._first, worker)
                seen = self._n_seen.pop((worker, number), began)
                self.staleness = max(self.staleness, self._others(self.applied, worker) - seen)
                self.count(worker)

    def count(self, workers: int | slice) -> None:
        """Save the value, which has one update more of these."""
        self.applied[workers] += 1
        lp.current().save((self.value, self.applied), keep=1)
        self.changed.notify_all()

    def gather(self, worker: int, number: int, given: Given) -> list[Given]:
        """With the lock: return what all workers have given, in their order; nothing before the last has."""
        if number == self.applied[worker]:
            self._given[worker] = given
        if len(self._given) < len(self.applied):
            return []
        return [self._given.pop(i) for i in range(len(self.applied))]

    def withdraw(self, worker: int) -> None:
        """With the lock: what this worker has given, and not all have, is not used: it will give anew."""
        self._given.pop(worker, None)

    def get(self, worker: int) -> Value:
        """Return a copy of the value, of which this worker makes its next update."""
        with self.changed:
            self._n_seen[worker, int(self.applied[worker])] = self._others(self.applied, worker)
            return copy.deepcopy(self.value)

    def mark_seen(self, worker: int, number: int) -> None:
        """With the lock: of the value as it is now, this worker makes its update of that number.

        If several do, the members of a group, the first counts.
        """
        self._n_seen.setdefault((worker, number), self._others(self.applied, worker))

    def wait(self, clock: int, staleness: float = 0) -> bool:
        """With the lock: wait until every worker's clock is at most `staleness` behind this one.

        Returns:
            Whether there was anything to wait for.

        Raises:
            Stopped: this attempt has ended; where it is a thread, nothing else would end the wait.
        """
        is_late = bool(self.applied.min() < clock - staleness)
        self.changed.wait_for(
            lambda: self._stop.is_set() or self.applied.min() >= clock - staleness
        )
        if self._stop.is_set():
            raise lp.Stopped(f"{lp.current().name} has ended: clock {clock} is not waited for")
        return is_late

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    @staticmethod
    def _others(clocks: npt.NDArray[np.int64], worker: int) -> int:
        return int(clocks.sum() - clocks[worker])
