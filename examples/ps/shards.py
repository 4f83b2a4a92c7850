"""Shards: each holds one part of the parameters. Its class decides what it does with a gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState


class Report(NamedTuple):
    """A shard's report of itself.

    Attributes:
        applied: How many gradients of each worker are in the parameters.
        staleness: The most gradients that came between a worker's pull and its push, in this attempt.
        n_waits: How many pushes waited for other workers, in this attempt.
    """

    applied: list[int]
    staleness: int
    n_waits: int
    attempt: int


class Shard(ABC):
    """One part of the parameters. Workers push their gradients to it.

    Args:
        parameters: The parameters that the first attempt begins with.
        workers: How many workers push.
        learning_rate: How far the parameters follow the mean of the workers' gradients.
        kill_at: The step of worker 0 at which this shard kills itself, once.
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
        self._n_waits = 0
        self._waiting: set[int] = set()
        self._kill_at = kill_at if lp.current().attempt == 1 else None

    @lp.idempotent
    def parameters(self) -> Array:
        with self._state.changed:
            return self._state.value.copy()

    @lp.idempotent
    def report(self) -> Report:
        with self._state.changed:
            applied = self._state.applied.tolist()
            return Report(applied, self._state.staleness, self._n_waits, lp.current().attempt)

    @lp.idempotent
    @abstractmethod
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        """Take a worker's gradient. Return the parameters that it should go on with."""

    @lp.idempotent
    def straggle(self, worker: int, lead: int) -> None:
        """Return when each other worker waits, or is `lead` steps ahead of this one."""
        with self._state.changed:
            clocks = self._state.applied
            others = set(range(len(clocks))) - {worker}
            self._state.changed.wait_for(
                lambda: all(
                    i in self._waiting or clocks[i] >= clocks[worker] + lead for i in others
                )
            )

    def _wait(self, worker: int, clock: int, slack: float) -> None:
        """Wait until the slowest worker is at most `slack` steps behind. The caller holds the lock."""
        self._waiting.add(worker)
        self._state.changed.notify_all()
        has_waited = self._state.wait(clock, slack)
        self._n_waits += has_waited
        self._waiting.discard(worker)

    def _perhaps_crash(self, worker: int, step: int) -> None:
        """Die at the worst moment: the gradient is applied and saved, and its worker does not know."""
        if worker == 0 and step == self._kill_at:
            lp.testing.crash()


class AsyncShard(Shard):
    """A shard that applies each gradient as soon as it comes, however old its parameters were."""

    slack: ClassVar[float] = float("inf")

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._state.update(worker, step) as is_new:
            if is_new:
                # SyncShard follows the mean of all workers' gradients: this one's share is the same here.
                self._state.value -= self._learning_rate * gradient / len(self._state.applied)
        self._perhaps_crash(worker, step)
        with self._state.changed:
            # A method may block: the server handles the other workers' calls in other threads.
            self._wait(worker, step + 1, self.slack)
            return self._state.get(worker)


class SspShard(AsyncShard):
    """An AsyncShard that makes a worker wait while it is more than two steps ahead of the slowest."""

    slack: ClassVar[float] = 2


class SyncShard(Shard):
    """A shard that waits for the gradients of all workers, applies their mean, and answers them all."""

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._state.changed:
            # The sum is in the workers' order, so that the bits don't depend on which gradient came first.
            gradients = self._state.gather(worker, step, gradient)
            if gradients:
                self._state.value -= self._learning_rate * sum(gradients) / len(gradients)
                self._state.count(slice(None))
            self._wait(worker, step + 1, slack=0)
        self._perhaps_crash(worker, step)
        return self._state.get(worker)
