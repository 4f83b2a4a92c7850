"""The driver of each mode: it holds the weights, and decides what becomes of an update.

A driver that dies is started again, and goes on where it was: see _shared/shard.py.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.digits import Array
from examples._shared.shard import ShardState
from examples.systems.elephas.algorithm import Model, Weights

RACE_S = 0.01
"""How long a slow update waits at most, between reading and writing, for another one to come."""

SLOW_S = 1.0
"""How long others wait at most for a slow one to be written: it may be in a thread that has ended."""


class Fitted(NamedTuple):
    """What a driver has at the end.

    Attributes:
        pushed: How many updates it has taken, of each worker.
        staleness: The most updates that came between what a worker pulled and what it made of it.
        attempt: 2 if it was killed once.
    """

    weights: Weights
    pushed: list[int]
    staleness: int
    attempt: int


class Driver(ABC):
    """Holds the weights of a model, which workers pull, and update by what training has changed.

    Args:
        model: What it begins with, if it has not begun before.
        workers: How many push.
        rounds: How many updates each of them pushes.
        dies: Whether it does, in its first attempt, at the first pull after three quarters of all updates.
    """

    def __init__(self, model: Model, workers: int, rounds: int, dies: bool = False) -> None:
        first = Weights(model.parameters, np.zeros((workers, rounds), np.int64))
        self._state = ShardState(first, workers)
        self._dies = dies

    @lp.idempotent
    def clock(self, worker: int) -> int:
        """How many updates of this worker it has taken: the number of the next."""
        return int(self._state.applied[worker])

    @lp.idempotent
    def pull(self, worker: int) -> Array:
        """Return the parameters."""
        three_quarters = 3 * self._state.value.counts.size // 4
        is_due = self._dies and self._state.applied.sum() >= three_quarters
        if is_due and lp.current().attempt == 1:
            lp.testing.crash()  # without the lock: the stop handler takes it, where this is a thread
        return self._state.get(worker).parameters

    @lp.idempotent
    @abstractmethod
    def push(self, worker: int, number: int, delta: Array) -> None:
        """Take what a worker has changed; answers when it may pull again."""

    @lp.idempotent
    def fitted(self) -> Fitted:
        """What there is when all have pushed."""
        state = self._state
        return Fitted(state.value, state.applied.tolist(), state.staleness, lp.current().attempt)


class Asynchronous(Driver):
    """Adds each update as it comes, under a lock."""

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        # An update that does not fit raises in here: the lock is released, and it does not count.
        with self._state.update(worker, number) as is_new:
            if is_new:
                self._state.value = self._state.value.plus(delta, worker, number)


class Hogwild(Driver):
    """Reads and writes the weights without a lock: what comes in between is overwritten.

    That is a matter of microseconds, and so of chance. So that it happens, every fourth update of a worker
    takes long: until another one has come, which is lost. Those that come after that write later, so that
    it is one, however long a busy machine keeps this thread waiting.
    """

    def __init__(self, model: Model, workers: int, rounds: int, dies: bool = False) -> None:
        super().__init__(model, workers, rounds, dies)
        self._is_overtaken = threading.Event()
        self._is_written = threading.Event()
        self._is_written.set()

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        self._state.value.check(delta)
        # Counted as pushed before it is in: so it may be lost, but never be in twice.
        with self._state.update(worker, number) as is_new:
            if not is_new:
                return
            read = self._state.value
            is_slow = number % 4 == 0 and self._is_written.is_set()
            overtakes = not self._is_written.is_set() and not self._is_overtaken.is_set()
            if is_slow:
                self._is_written.clear()
                self._is_overtaken.clear()
            elif overtakes:
                self._state.value = read.plus(delta, worker, number)
                self._is_overtaken.set()
        if is_slow:
            self._is_overtaken.wait(RACE_S)
            is_late = self._is_written.is_set()  # no other one has waited so long
            self._state.value = (self._state.value if is_late else read).plus(delta, worker, number)
            self._is_written.set()
        elif not overtakes:
            if not self._is_written.wait(SLOW_S):
                self._is_written.set()
            self._state.value = self._state.value.plus(delta, worker, number)


class Synchronous(Driver):
    """Waits for the updates of all workers, and adds their mean."""

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        self._state.value.check(delta)
        with self._state.changed:
            # In the workers' order, so that the bits do not depend on which came first.
            deltas = self._state.gather(worker, number, delta)
            for other, each in enumerate(deltas):
                mean = each / len(deltas)
                self._state.value = self._state.value.plus(mean, other, number)
            if deltas:
                self._state.count(slice(None))
            self._state.wait(number + 1)


MODES: dict[str, type[Driver]] = {
    "synchronous": Synchronous,
    "asynchronous": Asynchronous,
    "hogwild": Hogwild,
}
