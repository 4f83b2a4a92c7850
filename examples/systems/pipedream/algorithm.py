"""The planner, and 1F1B with weight stashing: the order of a stage's passes, and the weights of each.

    stage 0 of 3   F0 F1 F2 · · B0 F3 B1 F4 B2 F5 B3 …     F3: minibatch 3 goes forward
    stage 1 of 3   · F0 F1 · B0 F2 B1 F3 B2 F4 B3 …        B0: minibatch 0 goes backward; then the stage's
    stage 2 of 3   · · F0 B0 F1 B1 F2 B2 F3 B3 …               weights are updated

A minibatch goes forward with the newest weights, and backward with the same, which are stashed until then.
The number of a version says how many minibatches are in it.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from examples._shared.data import Array
from examples._shared.logical_time import Event
from examples._shared.networks import Network
from examples._shared.profiler import Profile


class Part(NamedTuple):
    """A stage of a plan: its number of layers, and of replicas."""

    layers: int
    replicas: int


Plan = Sequence[Part]


def shown(plan: Plan) -> str:
    """Return the layers of each stage and its replicas as text: `2 + 3×2`."""
    return " + ".join(f"{n}×{replicas}" if replicas > 1 else f"{n}" for n, replicas in plan)


def best_plan(profile: Profile, machines: int, bandwidth: float) -> tuple[Part, ...]:
    """Return the plan whose slowest stage takes the least time per minibatch: section 3.1 of the paper.

    A stage of m replicas takes 1/m of the time of its layers, or of its all-reduce, by a ring, if that takes
    longer: both go on at once. Between two stages an activation goes forward and its gradient back.

    Args:
        bandwidth: Bytes per second between any two machines.
    """

    def stage_s(begin: int, end: int, replicas: int) -> float:
        """Return the time per minibatch of a stage of the layers from `begin` to before `end`."""
        all_reduced = 2 * (replicas - 1) / replicas * sum(profile.weights[begin:end])
        return max(sum(profile.seconds[begin:end]), all_reduced / bandwidth) / replicas

    @functools.cache
    def best(end: int, machines: int) -> tuple[float, tuple[Part, ...]]:
        """Return the best plan for the layers before `end`: one stage, or a best plan and a last stage."""
        plans: list[tuple[float, tuple[Part, ...]]] = []
        plans.append((stage_s(0, end, machines), (Part(end, machines),)))
        for begin in range(1, end):
            transfer_s = 2 * profile.outputs[begin - 1] / bandwidth
            for replicas in range(1, machines):
                before_s, before = best(begin, machines - replicas)
                slowest_s = max(before_s, transfer_s, stage_s(begin, end, replicas))
                plans.append((slowest_s, (*before, Part(end - begin, replicas))))
        return min(plans)

    return best(len(profile.seconds), machines)[1]


def in_flight(plan: Plan, stage: int) -> int:
    """Return how many minibatches a replica must begin before it ends one, so that no stage waits."""
    return math.ceil(sum(part.replicas for part in plan[stage:]) / plan[stage].replicas)


def schedule(mine: range, depth: int, n_done: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the passes of a replica, with `depth` minibatches in flight. It has done the first `n_done`."""
    if not n_done:
        yield from (("forward", minibatch) for minibatch in mine[: depth - 1])
    for i in range(n_done, len(mine)):
        yield from (("forward", minibatch) for minibatch in mine[i + depth - 1 : i + depth])
        yield "backward", mine[i]


def cut(network: Network, plan: Plan, parameters: Array) -> list[Array]:
    """Return each stage's part of the parameters, or of their gradient."""
    ends = accumulate(part.layers for part in plan)
    return np.split(parameters, [sum(network.sizes[:end]) for end in ends])[:-1]


@dataclass
class Layers:
    """The layers of a stage: the versions of their weights, and the minibatches that are in flight."""

    network: Network
    stage: int
    versions: dict[int, Array]
    in_flight: dict[int, tuple[int, list[Array]]] = field(default_factory=dict)
    most_versions: int = 1
    losses: list[float] = field(default_factory=list)  # of the minibatches, in the last stage
    trace: list[Event] = field(default_factory=list)
    n_resumed: int = 0  # how many minibatches were done when the last attempt began

    @property
    def weights(self) -> Array:
        """Return the newest version."""
        return self.versions[max(self.versions)]

    def forward(self, minibatch: int, inputs: Array) -> None:
        """Compute the outputs, and keep what `backward` needs."""
        self.in_flight[minibatch] = max(self.versions), self.network.forward(self.weights, inputs)

    def backward(self, minibatch: int, gradient: Array) -> tuple[Array, Array]:
        """Turn the gradient by the outputs into those by the inputs and by the weights."""
        used, values = self.in_flight.pop(minibatch)
        return self.network.backward(self.versions[used], values, gradient)

    def update(self, change: Array, version: int) -> None:
        """Make the next version, and drop those that no minibatch in flight has used."""
        weights = self.weights + change
        stashed = {used for used, _ in self.in_flight.values()}
        self.versions = {v: w for v, w in self.versions.items() if v in stashed}
        self.versions[version] = weights
        self.most_versions = max(self.most_versions, len(self.versions))
