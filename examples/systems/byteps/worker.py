"""A worker: it computes gradients, pushes them, and pulls their sums. It has the optimizer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.byteps.algorithm import Event, SendQueue, train_step
from examples.systems.byteps.optimizer import Momentum
from examples.systems.byteps.placement import PARTITION_BYTES, Partition, cut
from examples.systems.byteps.server import SummationServer

CREDIT = PARTITION_BYTES
RESULT_BYTES = 1 << 20


@dataclass(frozen=True)
class Trained:
    """The result of a worker.

    Attributes:
        parameters: The parameters; None if there are too many, so that their digest must do.
        trace: The events of its queue.
        attempts: The attempt of each server at the end.
    """

    sha256: str
    parameters: Array | None
    trace: list[Event]
    attempts: list[int]


class Worker:
    """A worker. It trains in step with the others, on its slice of every batch.

    Args:
        problem: The problem to train on.
        servers: The servers beside the workers, then those of spare machines.
        shares: The share of the gradients that each server adds up.
        by_priority: True if the gradients of the first layer overtake others.
        momentum: The momentum of the optimizer.
    """

    def __init__(
        self,
        problem: Problem,
        servers: Sequence[lp.CourierClient[SummationServer]],
        shares: Sequence[float],
        by_priority: bool,
        momentum: float,
    ) -> None:
        self._problem = problem
        self._servers = servers
        self._index = lp.current().replica_index
        threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
        self._parameters = problem.first_parameters
        self._layers = networks.matrices(problem.widths, self._parameters)
        rates = problem.learning_rate, momentum
        self._optimizers = [Momentum(layer, *rates) for layer in self._layers]
        # Each worker begins with another server, so that they don't all send to the same one.
        self._partitions = [
            sorted(partitions, key=lambda each: (each.server - self._index) % len(shares))
            for partitions in cut([layer.size for layer in self._layers], shares)
        ]
        self._queue = SendQueue(self._send, CREDIT, by_priority)
        self._threads = ThreadPoolExecutor(sum(map(len, self._partitions)))
        self._sums: list[SimpleQueue[Future[tuple[Partition, Array]]]]
        self._sums = [SimpleQueue() for _ in self._layers]
        self._step = 0  # of what is in the queue
        self._kept: dict[tuple[int, Partition], Array] = {}

    @lp.idempotent
    def kept(self, server: int) -> dict[tuple[int, Partition], Array]:
        return {key: value for key, value in self._kept.items() if key[1].server == server}

    def run(self) -> Trained:
        with self._threads:
            for step in range(self._problem.steps):
                digits = self._problem.slice(step, self._index)
                before = self._update if step else lambda layer: None
                send = partial(self._push, step)
                train_step(self._problem.widths, self._layers, digits, before, send)
            for layer in range(len(self._layers)):
                self._update(layer)
        return Trained(
            hashlib.sha256(self._parameters.tobytes()).hexdigest(),
            self._parameters if self._parameters.nbytes <= RESULT_BYTES else None,
            self._queue.events,
            lp.broadcast(self._servers).attempt(),
        )

    def _push(self, step: int, layer: int, gradient: Array) -> None:
        """Put a layer's gradient into the queue. All sums of the step before have come."""
        self._step = step
        gradients = {
            (step, each): gradient[each.begin : each.end] for each in self._partitions[layer]
        }
        recent = {key: value for key, value in self._kept.items() if key[0] >= step - 1}
        # Replace the dict at once: a server may be reading it in `kept` at this moment.
        self._kept = recent | gradients
        self._queue.put(self._partitions[layer])

    def _send(self, partition: Partition) -> None:
        future = self._threads.submit(self._push_pull, self._step, partition)
        future.add_done_callback(self._sums[partition.layer].put)

    def _push_pull(self, step: int, partition: Partition) -> tuple[Partition, Array]:
        server = self._servers[partition.server]
        try:
            server.push(self._index, step, partition, self._kept[step, partition])
        finally:
            self._queue.arrived(partition)
        return partition, server.pull(step, partition)

    def _update(self, layer: int) -> None:
        """Wait for the sum of a layer's gradients, and update its parameters by the mean."""
        total = np.empty(self._layers[layer].size)
        for _ in self._partitions[layer]:
            partition, part = self._sums[layer].get().result()
            total[partition.begin : partition.end] = part
        total /= self._problem.workers
        self._optimizers[layer].step(total.reshape(self._layers[layer].shape))
