"""1F1B with weight stashing: the order of a stage's passes, and the weights of each pass.

    stage 0 of 3   F0 F1 F2 · · B0 F3 B1 F4 B2 F5 B3 …     F3: minibatch 3 goes forward
    stage 1 of 3   · F0 F1 · B0 F2 B1 F3 B2 F4 B3 …        B0: minibatch 0 goes backward; then the stage's
    stage 2 of 3   · · F0 B0 F1 B1 F2 B2 F3 B3 …               weights are updated

With weight stashing a minibatch goes forward with the newest weights, and backward with the same. With
vertical sync it takes the version that it had in the stage before. The number of a version says how many
minibatches are in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from examples._shared import networks
from examples._shared.data import Array
from examples._shared.networks import Widths

FORWARD = "forward"
BACKWARD = "backward"
# Rules for the weights:
STASHING = "stashing"
VERTICAL_SYNC = "vertical sync"
NAIVE = "naive"


class Part(NamedTuple):
    """A stage of a plan: its number of layers, and of replicas."""

    layers: int
    replicas: int


Plan = Sequence[Part]


def in_flight(plan: Plan, stage: int) -> int:
    """Return how many minibatches a replica must begin before it ends one, so that no stage waits."""
    return math.ceil(sum(part.replicas for part in plan[stage:]) / plan[stage].replicas)


def schedule(mine: range, depth: int, n_done: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the passes of a replica, with `depth` minibatches in flight. It has done the first `n_done`."""
    if not n_done:
        yield from ((FORWARD, minibatch) for minibatch in mine[: depth - 1])
    for i in range(n_done, len(mine)):
        yield from ((FORWARD, minibatch) for minibatch in mine[i + depth - 1 : i + depth])
        yield BACKWARD, mine[i]


def cut(widths: Widths, plan: Plan, parameters: Array) -> list[tuple[Widths, Array]]:
    """Return each stage's widths, and its part of the parameters, or of their gradient."""
    ends = pairwise(accumulate((part.layers for part in plan), initial=0))
    own = [widths[begin : end + 1] for begin, end in ends]
    sizes = [sum((inputs + 1) * outputs for inputs, outputs in pairwise(each)) for each in own]
    return list(zip(own, np.split(parameters, np.cumsum(sizes)[:-1]), strict=True))


@dataclass
class Layers:
    """The layers of a stage: the versions of their weights, and the minibatches that are in flight."""

    widths: Widths
    is_last: bool
    rule: str
    rate: float
    versions: dict[int, Array]
    in_flight: dict[int, tuple[int, list[Array]]] = field(default_factory=dict)
    used: int = 0  # the version that the last minibatch went forward with
    most_versions: int = 1

    @property
    def weights(self) -> Array:
        """Return the newest version."""
        return self.versions[max(self.versions)]

    def forward(self, minibatch: int, inputs: Array, used_before: float) -> None:
        """Compute the outputs, and keep what `backward` needs."""
        newest = used_before if self.rule == VERTICAL_SYNC else math.inf
        self.used = max(version for version in self.versions if version <= newest)
        values = networks.forward(self.widths, self.versions[self.used], inputs, self.is_last)
        self.in_flight[minibatch] = self.used, values

    def backward(self, minibatch: int, gradient: Array) -> tuple[Array, Array]:
        """Turn the gradient by the outputs into those by the inputs and by the weights."""
        used, values = self.in_flight.pop(minibatch)
        weights = self.weights if self.rule == NAIVE else self.versions[used]
        return networks.backward(self.widths, weights, values, gradient, self.is_last)

    def update(self, gradient: Array, version: int) -> None:
        """Make the next version, and drop those that no minibatch needs any more."""
        stashed = [used for used, _ in self.in_flight.values()]
        oldest = {
            STASHING: min(stashed, default=version),
            VERTICAL_SYNC: min(
                [*stashed, self.used]
            ),  # the next minibatch may use this one, but no older
            NAIVE: version,
        }[self.rule]
        weights = self.weights - self.rate * gradient
        self.versions = {v: w for v, w in self.versions.items() if v >= oldest} | {version: weights}
        self.most_versions = max(self.most_versions, len(self.versions))
