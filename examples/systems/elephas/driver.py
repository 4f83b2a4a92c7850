"""The driver of each mode: it holds the weights, and decides what happens to an update.

If a driver dies, launchpad starts it again, and it goes on where it was: see _shared/shard.py.
"""

from typing import NamedTuple

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.elephas.algorithm import Weights

SLOW_EVERY = 8  # in hogwild, one update in this number is slow
SLOW_S = 0.05  # the longest time that it waits, between reading and writing, for another one


class Fitted(NamedTuple):
    """The state of the driver at the end."""

    weights: Weights
    staleness: int  # the most updates that came between a worker's pull and its push
    attempt: int


class Driver:
    """The driver in asynchronous mode: it adds each update as it comes, under a lock.

    Workers pull the weights, train, and push how the training has changed them.

    Args:
        first: The parameters that the first attempt begins with.
        n_rounds: How many updates each worker pushes.
        dies: If True, the first attempt dies at the first pull after three quarters of all updates.
    """

    def __init__(self, first: Array, workers: int, n_rounds: int, dies: bool) -> None:
        self._state = ShardState(Weights(first, np.zeros((workers, n_rounds), np.int64)), workers)
        self._dies_at = 3 * workers * n_rounds // 4 if dies else np.inf

    @lp.idempotent
    def clock(self, worker: int) -> int:
        """Return how many updates of this worker it has taken, which is the number of the next one."""
        return int(self._state.applied[worker])

    @lp.idempotent
    def pull(self, worker: int) -> Array:
        """Return the parameters."""
        if self._state.applied.sum() >= self._dies_at and lp.current().attempt == 1:
            # Don't hold the lock here: if this worker is a thread, its stop handler takes the lock.
            lp.testing.crash()
        return self._state.get(worker).parameters

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        """Take a worker's update. Return when the worker may pull again."""
        with self._state.update(worker, number) as is_new:
            if is_new:
                self._state.value = self._state.value.plus(delta, worker, number)

    @lp.idempotent
    def fitted(self) -> Fitted:
        """Return the state when all have pushed."""
        return Fitted(self._state.value, self._state.staleness, lp.current().attempt)


class Hogwild(Driver):
    """A driver that doesn't hold the lock between reading and writing, and so overwrites other updates.

    That is a matter of microseconds, and so of chance. To make it happen, some updates are slow: they write
    when another update has come.
    """

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        is_slow = number % SLOW_EVERY == 0
        # The update counts as pushed before the weights have it. So it may be lost, but is never added twice.
        with self._state.update(worker, number) as is_new:
            weights = self._state.value
            if is_new and not is_slow:
                self._state.value = weights.plus(delta, worker, number)
        if is_new and is_slow:
            with self._state.changed:
                self._state.changed.wait_for(lambda: self._state.value is not weights, SLOW_S)
                self._state.value = weights.plus(delta, worker, number)


class Synchronous(Driver):
    """A driver that waits for the updates of all workers, and adds their mean."""

    @lp.idempotent
    def push(self, worker: int, number: int, delta: Array) -> None:
        with self._state.changed:
            # Add them in the workers' order, so that the bits don't depend on which came first.
            deltas = self._state.gather(worker, number, delta)
            for index, own in enumerate(deltas):
                mean = own / len(deltas)
                self._state.value = self._state.value.plus(mean, index, number)
            if deltas:
                self._state.count(slice(None))
            self._state.wait(number + 1)


MODES = {"synchronous": Synchronous, "asynchronous": Driver, "hogwild": Hogwild}
