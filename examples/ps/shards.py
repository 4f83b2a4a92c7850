"""A shard: one part of the parameters, and what is done with a gradient that comes for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import launchpad as lp
from examples._shared.digits import Array
from examples._shared.shard import ShardState


class Shard(ABC):
    """Holds one part of the parameters; workers push gradients, each at a time of its own.

    Args:
        parameters: Where it begins, if it has not begun before.
        workers: How many push.
        learning_rate: How far the mean of the workers' gradients is followed.
        kill_at: At which step of worker 0 this shard kills itself, once.
    """

    def __init__(
        self,
        parameters: Array,
        workers: int,
        learning_rate: float,
        kill_at: int | None = None,
    ) -> None:
        self._state = ShardState(parameters, workers)
        self._learning_rate = learning_rate
        self._kill_at = kill_at if lp.current().attempt == 1 else None

    @lp.idempotent
    def parameters(self) -> Array:
        with self._state.changed:
            return self._state.value.copy()

    @lp.idempotent
    def applied(self) -> list[int]:
        """How many gradients of each worker are in the parameters."""
        with self._state.changed:
            return self._state.applied.tolist()

    @lp.idempotent
    def staleness(self) -> int:
        """The most gradients that came, in this attempt, between what a worker got and its own."""
        return self._state.staleness

    @lp.idempotent
    def attempt(self) -> int:
        return lp.current().attempt

    @lp.idempotent
    @abstractmethod
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        """Take a worker's gradient; returns the parameters it should go on with."""

    def _perhaps_crash(self, worker: int, step: int) -> None:
        """Die where the gradient is in, and saved, and its worker does not know."""
        if worker == 0 and step == self._kill_at:
            lp.testing.crash()


class AsyncShard(Shard):
    """Applies each gradient as soon as it comes, however old the parameters it was computed on."""

    slack: ClassVar[float] = float("inf")

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._state.update(worker, step) as is_new:
            if is_new:
                # Each worker's is one of the gradients of which SyncShard follows the mean.
                self._state.value -= self._learning_rate * gradient / len(self._state.applied)
        self._perhaps_crash(worker, step)
        with self._state.changed:
            # A method may block: the server takes the other workers' calls in other threads.
            self._state.wait(step + 1, self.slack)
            return self._state.get(worker)


class SspShard(AsyncShard):
    """Does so too, and has a worker wait that is more than two steps ahead of the slowest."""

    slack: ClassVar[float] = 2


class SyncShard(Shard):
    """Waits for the gradients of all workers, applies their mean, and answers them all."""

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._state.changed:
            # Summed in the workers' order, so that the bits do not depend on which came first.
            if gradients := self._state.gather(worker, step, gradient):
                self._state.value -= self._learning_rate * sum(gradients) / len(gradients)
                self._state.count(slice(None))
            self._state.wait(step + 1)
        self._perhaps_crash(worker, step)
        return self._state.get(worker)
