"""A shard: one part of the parameters, and what is done with a gradient that comes for it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from examples.ps.model import Array


class Shard(ABC):
    """Holds one part of the parameters; workers push gradients, each at a time of its own."""

    def __init__(self, parameters: Array, workers: int, learning_rate: float) -> None:
        self._parameters = parameters
        self._workers = workers
        self._learning_rate = learning_rate
        self._changed = threading.Condition()

    def parameters(self) -> Array:
        with self._changed:
            return self._parameters.copy()

    @abstractmethod
    def push(self, worker: int, gradient: Array) -> Array:
        """Take a worker's gradient; returns the parameters it should go on with."""


class AsyncShard(Shard):
    """Applies each gradient as soon as it comes, however old the parameters it was computed on."""

    def push(self, worker: int, gradient: Array) -> Array:
        with self._changed:
            self._parameters -= self._learning_rate * gradient
            return self._parameters.copy()


class SyncShard(Shard):
    """Waits for the gradients of all workers, applies their mean, and answers them all."""

    def __init__(self, parameters: Array, workers: int, learning_rate: float) -> None:
        super().__init__(parameters, workers, learning_rate)
        self._step = 0
        self._gradients: dict[int, Array] = {}

    def push(self, worker: int, gradient: Array) -> Array:
        with self._changed:
            step = self._step
            self._gradients[worker] = gradient
            if len(self._gradients) == self._workers:
                self._apply_mean()
            # A method may block: the server takes the other workers' calls in other threads.
            self._changed.wait_for(lambda: self._step > step)
            return self._parameters.copy()

    def _apply_mean(self) -> None:
        # Summed in the workers' order, so that the bits do not depend on who came first.
        total = sum(self._gradients[worker] for worker in range(self._workers))
        self._parameters -= self._learning_rate * total / self._workers
        self._gradients.clear()
        self._step += 1
        self._changed.notify_all()
