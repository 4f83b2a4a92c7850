"""A worker: it computes gradients, pushes them, and pulls their sums. It has the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared.data import Array
from examples._shared.networks import layers_of
from examples._shared.optimizers import Momentum
from examples._shared.problem import Problem
from examples.systems.byteps.algorithm import Event, SendQueue
from examples.systems.byteps.placement import PARTITION_BYTES, Partition, cut
from examples.systems.byteps.server import SummationServer


@dataclass(frozen=True)
class Options:
    """The order of gradients, the most bytes under way, and the momentum of the optimizer."""

    by_priority: bool = True
    credit: float = PARTITION_BYTES
    momentum: float = 0.0


@dataclass(frozen=True)
class Trained:
    """The result of a worker.

    Attributes:
        losses: The mean loss on its slice, at each step.
        trace: The events of its queue and its layers.
        attempts: The attempt of each server at the end.
    """

    parameters: Array
    losses: list[float]
    trace: list[Event]
    attempts: list[int]


class Worker:
    """A worker. It trains in step with the others, on its slice of every batch.

    Args:
        servers: The servers beside the workers, then those of spare machines.
        shares: The share of the gradients that each server adds up.
    """

    def __init__(
        self,
        problem: Problem,
        servers: Sequence[lp.CourierClient[SummationServer]],
        shares: Sequence[float],
        options: Options,
    ) -> None:
        threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
        self._problem = problem
        self._servers = servers
        self._index = lp.current().replica_index
        self._parameters = problem.first_parameters
        self._layers = layers_of(problem.network, self._parameters)
        rates = problem.learning_rate, options.momentum
        self._optimizers = [Momentum(own, np.zeros_like(own), *rates) for own in self._layers]
        # Each worker begins with another server, so that they don't all send to the same one.
        self._partitions = [
            sorted(partitions, key=lambda each: (each.server - self._index) % len(shares))
            for partitions in cut(problem.network.sizes, shares)
        ]
        self._queue = SendQueue(self._send, options.credit, options.by_priority)
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
            losses = [self._train_step(step) for step in range(self._problem.steps)]
            for layer in range(len(self._layers)):
                self._update(layer)
        attempts = lp.broadcast(self._servers).attempt()
        return Trained(self._parameters, losses, self._queue.events, attempts)

    def _train_step(self, step: int) -> float:
        """Go forward and back. Each layer waits for its own sums of the step before, and for no others."""
        data = self._problem.slice(step, self._index)
        values = [data.inputs]
        layers = [self._problem.network.part(i, i + 1) for i in range(len(self._layers))]
        for i, layer in enumerate(layers):
            if step:
                self._update(i)
            values += layer.forward(self._layers[i], values[-1])[1:]
            self._queue.record("forward", i)
        loss, gradient = self._problem.loss_function(values[-1], data)
        for i, layer in reversed(list(enumerate(layers))):
            gradient, own = layer.backward(self._layers[i], values[i : i + 2], gradient)
            self._queue.record("backward", i)
            self._push(step, i, own)
        return loss

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
        return partition, server.pull(self._index, step, partition)

    def _update(self, layer: int) -> None:
        """Wait for the sum of a layer's gradients, and update its parameters by the mean."""
        total = np.empty(self._layers[layer].size)
        for _ in self._partitions[layer]:
            partition, part = self._sums[layer].get().result()
            self._queue.record("sum", partition)
            total[partition.begin : partition.end] = part
        self._optimizers[layer].step(total / self._problem.workers)
