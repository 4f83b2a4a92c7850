"""The profiler: it measures the costs of a network's layers, on one machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import threadpoolctl

from examples._shared.data import Array
from examples._shared.networks import Network, layers_of


@dataclass(frozen=True)
class Profile:
    """A profile: each layer's seconds, forward and backward, and the bytes of its outputs and weights."""

    seconds: Sequence[float]
    outputs: Sequence[float]
    weights: Sequence[float]


def profile(network: Network, inputs: Array, repeats: int = 50) -> Profile:
    """Run each layer alone, and take the shortest of its times: other processes can only add to it."""
    # On a busy machine, several threads would wait for each other.
    threadpoolctl.threadpool_limits(1)
    seconds = []
    outputs = []
    weights = []
    for i, parameters in enumerate(layers_of(network, network.first_parameters())):
        layer = network.part(i, i + 1)
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            values = layer.forward(parameters, inputs)
            layer.backward(parameters, values, values[-1])
            times.append(time.perf_counter() - began)
        inputs = layer.forward(parameters, inputs)[-1]
        seconds.append(min(times))
        outputs.append(inputs.nbytes)
        weights.append(parameters.nbytes)
    return Profile(seconds, outputs, weights)
