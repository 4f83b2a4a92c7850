"""Data parallel training as Horovod does it. Nothing here knows who the other ranks are.

    backward                  layer 4 ─ layer 3 ─ layer 2 ┬ layer 1 ┐
                                                          ▼         ▼
    thread of communication                           bucket 1  bucket 2 ──▶ step of the wrapped optimizer

From the last layer to the first, tensors are fused into buckets. A full bucket leaves, and backward goes on.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.logical_time import Event
from examples._shared.networks import layers_of
from examples._shared.optimizers import Momentum
from examples._shared.problem import Problem


class Buckets:
    """Gradients on their way to the mean over all ranks.

    Args:
        mean: A function for the mean of an array over all ranks.
        fusion_bytes: The size at which a bucket is full.
        wire: The type in which gradients travel; float16 compresses them.

    Attributes:
        traces: The events of the main thread, and those of the thread of communication.
    """

    def __init__(
        self, mean: Callable[[Array], Array], fusion_bytes: int = 1 << 20, wire: str = "float64"
    ) -> None:
        self.traces: tuple[list[Event], list[Event]] = ([], [])
        self._mean = mean
        self._fusion_bytes = fusion_bytes
        self._wire = np.dtype(wire)
        self._main = threading.get_ident()
        self._communication = ThreadPoolExecutor(1)
        self._n_ready = 0
        self._n_sent = 0
        self._bucket: list[Array] = []
        self._under_way: list[Callable[[], None]] = []

    def ready(self, tensor: Array) -> None:
        """Take a tensor that backward has made, to replace it by the mean of all ranks."""
        self._record("backward", self._n_ready)
        self._n_ready += 1
        self._bucket.append(tensor)
        if self._wire.itemsize * sum(each.size for each in self._bucket) >= self._fusion_bytes:
            self._send()

    def wait(self) -> None:
        """Send the rest, and wait until all tensors are averaged."""
        if self._bucket:
            self._send()
        while self._under_way:
            self._under_way.pop(0)()

    def _send(self) -> None:
        number = self._n_sent
        self._record("send", number)
        average = self._communication.submit(self._average, number, self._bucket)
        # Nothing else can wait for the mean, so the trace shows every wait.
        self._under_way.append(lambda: self._record("all-reduce", number, average.result()))
        self._n_sent += 1
        self._bucket = []

    def _average(self, number: int, tensors: list[Array]) -> int:
        """Average a bucket in the thread of communication. Return the thread's number."""
        self._record("send", number, received_from=0)
        fused = np.concatenate([tensor.ravel() for tensor in tensors]).astype(self._wire)
        ends = np.cumsum([tensor.size for tensor in tensors])[:-1]
        for tensor, mean in zip(tensors, np.split(self._mean(fused), ends), strict=True):
            tensor[...] = mean.reshape(tensor.shape)
        self._record("all-reduce", number)
        return self._thread()

    def _record(self, kind: str, item: int, received_from: int | None = None) -> None:
        self.traces[self._thread()].append(Event(kind, item, received_from))

    def _thread(self) -> int:
        return int(threading.get_ident() != self._main)


class DistributedOptimizer:
    """A wrapper of an optimizer, whose steps then follow the mean gradient of all ranks."""

    def __init__(self, optimizer: Momentum, buckets: Buckets) -> None:
        self._optimizer = optimizer
        self._buckets = buckets
        self._gradient = np.empty_like(optimizer.parameters)

    def backward(self, problem: Problem, data: Data) -> float:
        """Return the mean loss. Its gradient leaves layer by layer, from the last one on."""
        network = problem.network
        parameters = layers_of(network, self._optimizer.parameters)
        values = network.forward(self._optimizer.parameters, data.inputs)
        loss, gradient = problem.loss_function(values[-1], data)
        own = layers_of(network, self._gradient)
        for i in reversed(range(len(own))):
            layer = network.part(i, i + 1)
            gradient, own[i][...] = layer.backward(parameters[i], values[i : i + 2], gradient)
            self._buckets.ready(own[i])
        return loss

    def step(self) -> None:
        self._buckets.wait()
        self._optimizer.step(self._gradient)
