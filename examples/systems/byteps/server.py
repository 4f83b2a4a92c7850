"""The summation service. It adds up, and knows nothing of networks, learning rates or optimizers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

import launchpad as lp
from examples._shared.data import Array
from examples.systems.byteps.placement import Partition


class SummationServer:
    """A server that adds up the gradients that workers push, and gives each worker the sums.

    It saves nothing. If it is started again, it asks the workers for what they pushed to the attempt before:
    each keeps its gradients of this step and of the last. Nothing older can be missing: a worker in step s +
    2 has sums of step s + 1, so all workers have pushed for that step, and had all sums of step s before.

    Args:
        index: The server's number among the servers.
        workers: All workers that push.
        kill_at: It dies once, at the worst moment: worker 0 has all sums of this step, and no other has any.
    """

    def __init__(
        self, index: int, workers: Sequence[lp.CourierClient[Any]], kill_at: int | None = None
    ) -> None:
        self._n_workers = len(workers)
        self._pushed: defaultdict[tuple[int, Partition], dict[int, Array]] = defaultdict(dict)
        self._sums: dict[Partition, tuple[int, Array]] = {}  # the newest sums, each with its step
        self._changed = threading.Condition()
        self._kill_at = kill_at if lp.current().attempt == 1 else None
        self._is_over = threading.Event()
        if lp.current().attempt > 1:
            for worker, client in enumerate(workers):
                for (step, partition), gradient in client.kept(index).items():
                    self.push(worker, step, partition, gradient)

    @lp.idempotent
    def push(self, worker: int, step: int, partition: Partition, gradient: Array) -> None:
        """Take a worker's gradient; the last one completes the sum."""
        if self._kill_at is not None and step > self._kill_at:
            try:
                lp.testing.crash()
            finally:  # reached only if this worker is a thread, which can't be killed
                self._is_over.set()
        with self._changed:
            if step <= self._last_step(partition):
                return  # the call was made again: the gradient is in the sum already
            pushed = self._pushed[step, partition]
            pushed[worker] = gradient
            if len(pushed) == self._n_workers:
                # Add up in the workers' order, so that the bits don't depend on which came first.
                total = reduce(np.add, (pushed[i] for i in range(self._n_workers)))
                del self._pushed[step, partition]
                self._sums[partition] = step, total
                self._changed.notify_all()

    @lp.idempotent
    def pull(self, worker: int, step: int, partition: Partition) -> Array:
        """Return the sum, once all have pushed."""
        if worker > 0 and step == self._kill_at:
            self._is_over.wait()
        with self._changed:
            self._changed.wait_for(lambda: self._last_step(partition) >= step)
            return self._sums[partition][1]

    @lp.idempotent
    def attempt(self) -> int:
        return lp.current().attempt

    def _last_step(self, partition: Partition) -> int:
        step, _ = self._sums.get(partition, (-1, None))
        return step
