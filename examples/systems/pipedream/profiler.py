"""The profiler: what each layer costs, measured on one machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import threadpoolctl

from examples._shared import networks
from examples._shared.digits import Array
from examples._shared.networks import Widths


@dataclass(frozen=True)
class Profile:
    """Of each layer: its seconds, forward and backward; the bytes of its outputs, and of its weights."""

    seconds: Sequence[float]
    outputs: Sequence[float]
    weights: Sequence[float]


def profile(widths: Widths, inputs: Array, repeats: int = 50) -> Profile:
    """Run each layer alone, and take the least of its times: others on the machine can only add to it."""
    threadpoolctl.threadpool_limits(1)  # several wait for each other where the machine is busy
    seconds, outputs, weights = [], [], []
    for own in pairwise(widths):
        parameters, times = networks.first_parameters(own), []
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
