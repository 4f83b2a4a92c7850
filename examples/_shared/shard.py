"""A shard of a parameter server: a part of the parameters, and how many updates of each worker are in it.

A shard may be killed at any moment, and must count every update exactly once. So it saves itself before it
answers: every update that it has acknowledged is on disk. If a call got no answer and its method is
`@lp.idempotent`, courier makes the call again. The number of the update then tells the shard whether it has
applied that update already.
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
    """The value of a shard. A new attempt goes on from the last update that the one before acknowledged.

    Args:
        first: The value that the first attempt begins with.
        workers: How many workers send updates.

    Attributes:
        value: The part of the parameters that the shard holds: an array, or anything that can be pickled.
        applied: The clocks: for each worker, how many of its updates are in the value.
        staleness: The most updates of other workers, in this attempt, between the value that a worker saw and
            the update that it made from that.
        changed: The lock of all three, and the condition that `applied` has changed.
    """

    def __init__(self, first: Value, workers: int) -> None:
        begin = first, np.zeros(workers, np.int64)
        self.value, self.applied = lp.current().load(default=begin)
        self.staleness = 0
        self._first = self.applied.copy()
        # By worker and number of its update: how many updates of others the worker had seen.
        self._n_seen: dict[tuple[int, int], int] = {}
        self.changed = threading.Condition()
        self._given: dict[int, Any] = {}
        self._stop = lp.stop_event()
        lp.register_stop_handler(self._wake)
        if lp.current().is_resumed:
            print(f"resumes after {self.applied.sum()} updates")

    @contextmanager
    def update(self, worker: int, number: int) -> Iterator[bool]:
        """Hold the lock, and yield True if the update is new. Save the value at the end if it is.

        An update that raises does not count, so it must not change the value before it raises.
        """
        with self.changed:
            if number > self.applied[worker]:
                has = f"has {self.applied[worker]} updates of worker {worker}"
                raise ValueError(f"this shard {has}: number {number} cannot be the next")
            is_new = number == self.applied[worker]
            yield is_new
            if is_new:
                began = self._others(self._first, worker)
                n_at_pull = self._n_seen.pop((worker, number), began)
                self.staleness = max(self.staleness, self._others(self.applied, worker) - n_at_pull)
                self.count(worker)

    def count(self, workers: int | slice) -> None:
        """Count one more update of these workers, and save the value."""
        self.applied[workers] += 1
        lp.current().save((self.value, self.applied), keep=1)
        self.changed.notify_all()

    def gather(self, worker: int, number: int, contribution: Given) -> list[Given]:
        """Return the contributions of all workers, in their order; an empty list until the last one came.

        The caller must hold the lock.
        """
        if number == self.applied[worker]:
            self._given[worker] = contribution
        if len(self._given) < len(self.applied):
            return []
        return [self._given.pop(i) for i in range(len(self.applied))]

    def withdraw(self, worker: int) -> None:
        """Forget what this worker has contributed to an incomplete update: it will contribute again.

        The caller must hold the lock.
        """
        self._given.pop(worker, None)

    def get(self, worker: int) -> Value:
        """Return a copy of the value, from which this worker makes its next update."""
        with self.changed:
            self._n_seen[worker, int(self.applied[worker])] = self._others(self.applied, worker)
            return copy.deepcopy(self.value)

    def mark_seen(self, worker: int, number: int) -> None:
        """Note that this worker makes its update of that number from the value as it is now.

        If several members of a group say so, the first one counts. The caller must hold the lock.
        """
        self._n_seen.setdefault((worker, number), self._others(self.applied, worker))

    def wait(self, clock: int, staleness: float = 0) -> bool:
        """Wait until every worker's clock is at most `staleness` behind this one.

        The caller must hold the lock.

        Returns:
            True if there was anything to wait for.

        Raises:
            Stopped: This attempt has ended. If it is a thread, nothing else would end the wait.
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
