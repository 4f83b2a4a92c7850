"""The driver of each mode: it holds the weights, and decides what happens to an update.

If a driver dies, launchpad starts it again, and it goes on where it was: see _shared/shard.py.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.elephas.algorithm import Model, Weights

RACE_S = 0.01
"""The longest time that a slow update waits, between reading and writing, for another one to come."""

SLOW_S = 1.0
"""The longest time that others wait for a slow update to be written; its thread may have ended."""


class Fitted(NamedTuple):
    """The state of a driver at the end.

    Attributes:
        pushed: How many updates of each worker the driver has taken.
        staleness: The most updates that came between a worker's pull and its push.
        attempt: 2 if the driver was killed once.
    """

    weights: Weights
    pushed: list[int]
    staleness: int
    attempt: int


class Driver(ABC):
    """The weights of a model. Workers pull them, train, and push how the training has changed them.

    Args:
        model: The model that the first attempt begins with.
        workers: How many workers push.
        rounds: How many updates each of them pushes.
        dies: If True, the first attempt dies at the first pull after three quarters of all updates.
    """

    def __init__(self, model: Model, workers: int, rounds: int, dies: bool = False) -> None:
        first = Weights(model.parameters, np.zeros((workers, rounds), np.int64))
        self._state = ShardState(first, workers)
        self._dies = dies

    @lp.idempotent
    def clock(self, worker: int) -> int:
        """Return how many updates of this worker it has taken, which is the number of the next one."""
        return int(self._state.applied[worker])

    @lp.idempotent
    def pull(self, worker: int) -> Array:
        """Return the parameters."""
        three_quarters = 3 * self._state.value.counts.size // 4
        is_due = self._dies and self._state.applied.sum() >= three_quarters
        if is_due and lp.current().attempt == 1:
            # Don't hold the lock here: if this worker is a thread, its stop handler takes the lock.
            lp.testing.crash()
        return self._state.get(worker).parameters

    @lp.idempotent
    @abstractmethod
    def push(self, worker: int, number: int, delta: Array) -> None:
        """Take a worker's update. Return when the worker may pull again."""

    @lp.idempotent
    def fitted(self) -> Fitted:
        """Return the state when all have pushed."""
        state = self._state
        return Fitted(state.value, state.applied.tolist(), state.staleness, lp.current().attempt)


class Asynchronous(Driver):
    """A driver that adds each update as it comes, under a lock."""

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        # An update that doesn't fit raises in this block. Then the lock is released, and it doesn't count.
        with self._state.update(worker, number) as is_new:
            if is_new:
                self._state.value = self._state.value.plus(delta, worker, number)


class Hogwild(Driver):
    """A driver that reads and writes the weights without a lock, and overwrites updates that come in between.

    That is a matter of microseconds, and so of chance. To make it happen, every fourth update of a worker is
    slow: it takes until another update has come, and overwrites that one. Updates that come later wait until
    the slow one is written. So exactly one is lost, however long a busy machine keeps the slow thread
    waiting.
    """

    def __init__(self, model: Model, workers: int, rounds: int, dies: bool = False) -> None:
        super().__init__(model, workers, rounds, dies)
        self._is_overtaken = threading.Event()
        self._is_written = threading.Event()
        self._is_written.set()

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        self._state.value.check(delta)
        # The update counts as pushed before the weights have it. So it may be lost, but is never added twice.
        with self._state.update(worker, number) as is_new:
            if not is_new:
                return
            weights = self._state.value
            is_slow = number % 4 == 0 and self._is_written.is_set()
            overtakes = not self._is_written.is_set() and not self._is_overtaken.is_set()
            if is_slow:
                self._is_written.clear()
                self._is_overtaken.clear()
            elif overtakes:
                self._state.value = weights.plus(delta, worker, number)
                self._is_overtaken.set()
        if is_slow:
            self._is_overtaken.wait(RACE_S)
            # After SLOW_S others no longer wait for this update: then it must not overwrite theirs.
            is_late = self._is_written.is_set()
            base = self._state.value if is_late else weights
            self._state.value = base.plus(delta, worker, number)
            self._is_written.set()
        elif not overtakes:
            if not self._is_written.wait(SLOW_S):
                self._is_written.set()
            self._state.value = self._state.value.plus(delta, worker, number)


class Synchronous(Driver):
    """A driver that waits for the updates of all workers, and adds their mean."""

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        self._state.value.check(delta)
        with self._state.changed:
            # Add them in the workers' order, so that the bits don't depend on which came first.
            deltas = self._state.gather(worker, number, delta)
            for index, own in enumerate(deltas):
                mean = own / len(deltas)
                self._state.value = self._state.value.plus(mean, index, number)
            if deltas:
                self._state.count(slice(None))
            self._state.wait(number + 1)


MODES: dict[str, type[Driver]] = {
    "synchronous": Synchronous,
    "asynchronous": Asynchronous,
    "hogwild": Hogwild,
}
