"""Data parallel training as Horovod does it. Nothing here knows who the other ranks are.

    backward                  layer 4 ─ layer 3 ─ layer 2 ┬ layer 1 ┐
                                                          ▼         ▼
    thread of communication                           bucket 1  bucket 2 ──▶ step of the wrapped optimizer

From the last layer to the first, tensors are fused into buckets. A full bucket leaves, and backward goes on.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from examples._shared import networks
from examples._shared.data import Array, Data


@dataclass
class Momentum:
    """The optimizer of one process: gradient descent with momentum, in place."""

    parameters: Array
    velocity: Array
    learning_rate: float
    momentum: float

    def step(self, gradient: Array) -> None:
        self.velocity *= self.momentum
        self.velocity += gradient
        self.parameters -= self.learning_rate * self.velocity


@dataclass
class DistributedOptimizer:
    """A wrapper of an optimizer, whose steps then follow the mean gradient of all ranks.

    Args:
        optimizer: The optimizer to wrap.
        mean, communication: A function for the mean of an array over all ranks, and the thread that calls it.
        fusion_bytes: The size at which a bucket is full.
        wire: The type in which gradients travel; float16 compresses them.
    """

    optimizer: Momentum
    mean: Callable[..., Array]
    communication: ThreadPoolExecutor
    fusion_bytes: int
    wire: str = "float64"

    def __post_init__(self) -> None:
        self.gradient = np.empty_like(self.optimizer.parameters)
        self.left_at: list[int] = []  # of each bucket: how many tensors had been ready
        self._n_ready = 0
        self._bucket: list[Array] = []
        self._under_way: list[Future[None]] = []

    def ready(self, tensor: Array) -> None:
        """Take a view of `gradient` that this rank has filled, to replace it by the mean of all ranks."""
        self._n_ready += 1
        self._bucket.append(tensor)
        n_bytes = np.dtype(self.wire).itemsize * sum(each.size for each in self._bucket)
        if n_bytes >= self.fusion_bytes:
            self._send()

    def step(self) -> None:
        """Wait until all gradients are averaged, and let the wrapped optimizer follow them."""
        if self._bucket:
            self._send()
        while self._under_way:
            self._under_way.pop(0).result()
        self.optimizer.step(self.gradient)

    def _send(self) -> None:
        self.left_at.append(self._n_ready)
        self._under_way.append(self.communication.submit(self._average, self._bucket))
        self._bucket = []

    def _average(self, tensors: list[Array]) -> None:
        fused = np.concatenate([tensor.ravel() for tensor in tensors]).astype(self.wire)
        ends = np.cumsum([tensor.size for tensor in tensors])[:-1]
        for tensor, mean in zip(tensors, np.split(self.mean(fused), ends), strict=True):
            tensor[...] = mean.reshape(tensor.shape)


def backward(
    widths: Sequence[int], parameters: Array, digits: Data, optimizer: DistributedOptimizer
) -> None:
    """Give the optimizer the gradient of the mean loss, tensor by tensor, from the last layer on."""
    values = networks.forward(widths, parameters, digits.inputs)
    _, gradient = networks.cross_entropy(values[-1], digits)
    own = networks.matrices(widths, parameters)
    of_layers = networks.matrices(widths, optimizer.gradient)
    for i in reversed(range(len(own))):
        layer = (widths[i : i + 2], own[i].ravel(), values[i : i + 2])
        is_last = i + 1 == len(own)
        gradient, of_layer = networks.backward(*layer, gradient, is_last)
        of_layers[i][...] = of_layer.reshape(own[i].shape)
        optimizer.ready(of_layers[i][-1])  # the biases
        optimizer.ready(of_layers[i][:-1])
