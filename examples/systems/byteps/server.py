"""The summation service. It adds up, and knows nothing of networks, learning rates or optimizers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import launchpad as lp
from examples._shared.data import Array
from examples.systems.byteps.placement import Partition


class KeepsGradients(Protocol):
    """The method of a worker that servers call."""

    def kept(self, server: int) -> dict[tuple[int, Partition], Array]:
        """Return the worker's gradients for a server, of this step and the last, by step and partition."""


class SummationServer:
    """A server that adds up the gradients that workers push, and gives each worker the sums.

    It saves nothing. If it is started again, it asks the workers for what they pushed to the attempt before:
    each keeps its gradients of this step and of the last. Nothing older can be missing: a worker in step s +
    2 has sums of step s + 1, so all workers have pushed for that step, and had all sums of step s before.

    Args:
        index: The server's number among the servers.
        workers: All workers that push.
    """

    def __init__(self, index: int, workers: Sequence[lp.CourierClient[KeepsGradients]]) -> None:
        self._n_workers = len(workers)
        self._pushed: defaultdict[tuple[int, Partition], dict[int, Array]] = defaultdict(dict)
        self._sums: dict[Partition, tuple[int, Array]] = {}  # the newest sums, each with its step
        self._changed = threading.Condition()
        if lp.current().attempt > 1:
            for worker, client in enumerate(workers):
                for (step, partition), gradient in client.kept(index).items():
                    self.push(worker, step, partition, gradient)

    @lp.idempotent
    def push(self, worker: int, step: int, partition: Partition, gradient: Array) -> None:
        """Take a worker's gradient; the last one completes the sum."""
        with self._changed:
            if step <= self._last_step(partition):
                return  # the call was made again: the gradient is in the sum already
            pushed = self._pushed[step, partition]
            pushed[worker] = gradient
            if len(pushed) == self._n_workers:
                # Add up in the workers' order, so that the bits don't depend on which came first.
                total = pushed[0].copy()
                for number in range(1, self._n_workers):
                    total += pushed[number]
                del self._pushed[step, partition]
                self._sums[partition] = step, total
                self._changed.notify_all()

    @lp.idempotent
    def pull(self, step: int, partition: Partition) -> Array:
        """Return the sum, once all have pushed."""
        with self._changed:
            self._changed.wait_for(lambda: self._last_step(partition) >= step)
            return self._sums[partition][1]

    @lp.idempotent
    def attempt(self) -> int:
        return lp.current().attempt

    def _last_step(self, partition: Partition) -> int:
        if partition not in self._sums:
            return -1
        step, _ = self._sums[partition]
        return step
