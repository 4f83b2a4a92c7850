"""The profiler: it measures the cost of each layer, on one machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import threadpoolctl

from examples._shared import networks
from examples._shared.data import Array
from examples._shared.networks import Widths


@dataclass(frozen=True)
class Profile:
    """A profile: each layer's seconds, forward and backward, and the bytes of its outputs and weights."""

    seconds: Sequence[float]
    outputs: Sequence[float]
    weights: Sequence[float]


def profile(widths: Widths, inputs: Array, repeats: int = 50) -> Profile:
    """Run each layer alone, and take the shortest of its times: other processes can only add to it."""
    threadpoolctl.threadpool_limits(
        1
    )  # on a busy machine several threads would wait for each other
    seconds = []
    outputs = []
    weights = []
    for own in pairwise(widths):
        parameters = networks.first_parameters(own)
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            values = networks.forward(own, parameters, inputs, is_last=False)
            networks.backward(own, parameters, values, values[-1], is_last=False)
            times.append(time.perf_counter() - began)
        inputs = networks.forward(own, parameters, inputs, is_last=False)[-1]
        seconds.append(min(times))
        outputs.append(inputs.nbytes)
        weights.append(parameters.nbytes)
    return Profile(seconds, outputs, weights)
