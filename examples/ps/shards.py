"""A shard: one part of the parameters, and what is done with a gradient that comes for it.

A shard may be killed at any moment, and must count every gradient exactly once. So it saves itself before it
answers: what was acknowledged is on disk. A push that was not answered is made again, by courier, since it is
idempotent; its number says whether it was applied before.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

import numpy as np

import launchpad as lp
from examples._shared.digits import Array


class Shard(ABC):
    """Holds one part of the parameters; workers push gradients, each at a time of its own.

    Args:
        parameters: Where it begins, if it has not begun before.
        workers: How many push.
        learning_rate: How far a gradient is followed.
    """

    def __init__(self, parameters: Array, workers: int, learning_rate: float) -> None:
        begin = parameters, np.zeros(workers, np.int64)  # of each worker, how many gradients
        self._parameters, self._applied = lp.current().load(default=begin)
        self._learning_rate = learning_rate
        self._changed = threading.Condition()
        if lp.current().is_resumed:
            print(f"resumes after {self._applied.sum()} gradients")

    @lp.idempotent
    def parameters(self) -> Array:
        with self._changed:
            return self._parameters.copy()

    @lp.idempotent
    def applied(self) -> list[int]:
        """How many gradients of each worker are in the parameters."""
        with self._changed:
            return self._applied.tolist()

    @lp.idempotent
    @abstractmethod
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        """Take a worker's gradient; returns the parameters it should go on with."""

    def _save(self) -> None:
        lp.current().save((self._parameters, self._applied))


class AsyncShard(Shard):
    """Applies each gradient as soon as it comes, however old the parameters it was computed on."""

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._changed:
            if step == self._applied[worker]:
                self._parameters -= self._learning_rate * gradient
                self._applied[worker] += 1
                self._save()
            return self._parameters.copy()


class SyncShard(Shard):
    """Waits for the gradients of all workers, applies their mean, and answers them all."""

    def __init__(self, parameters: Array, workers: int, learning_rate: float) -> None:
        super().__init__(parameters, workers, learning_rate)
        self._gradients: dict[int, Array] = {}

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array) -> Array:
        with self._changed:
            if step == self._applied[worker]:
                self._gradients[worker] = gradient
                if len(self._gradients) == len(self._applied):
                    self._apply_mean()
            # A method may block: the server takes the other workers' calls in other threads.
            self._changed.wait_for(lambda: self._applied[worker] > step)
            return self._parameters.copy()

    def _apply_mean(self) -> None:
        # Summed in the workers' order, so that the bits do not depend on which came first.
        total = sum(self._gradients[worker] for worker in sorted(self._gradients))
        self._parameters -= self._learning_rate * total / len(self._gradients)
        self._applied += 1
        self._gradients.clear()
        self._save()
        self._changed.notify_all()
