"""A summation server that is killed at the worst moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import launchpad as lp
from examples._shared.data import Array
from examples.systems.byteps.placement import Partition
from examples.systems.byteps.server import KeepsGradients, SummationServer


class KilledServer(SummationServer):
    """A server that dies once: when worker 0 has all its sums of a step, and no other worker has any."""

    def __init__(
        self, index: int, workers: Sequence[lp.CourierClient[KeepsGradients]], kill_at: int
    ) -> None:
        self._kill_at = kill_at if lp.current().attempt == 1 else None
        super().__init__(index, workers)
        self._is_time = threading.Event()
        self._is_over = threading.Event()

    def run(self) -> None:
        if self._kill_at is not None:
            self._is_time.wait()
            try:
                lp.testing.crash()
            finally:  # reached only if this worker is a thread, which can't be killed: `crash` raises
                self._is_over.set()

    @lp.idempotent
    def push(self, worker: int, step: int, partition: Partition, gradient: Array) -> None:
        if self._kill_at is not None and step == self._kill_at + 1:
            self._is_time.set()  # worker 0 has gone on
            self._is_over.wait()
        super().push(worker, step, partition, gradient)

    @lp.idempotent
    def pull(self, step: int, partition: Partition) -> Array:
        if step == self._kill_at and lp.caller().worker != "worker-0":
            self._is_over.wait()
        return super().pull(step, partition)
