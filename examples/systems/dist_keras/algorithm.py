"""The optimizers of dist-keras, each in two parts: the worker's and the server's.

Replica, at the worker                                 Centre, at the server
pull C ─▶ train for a window ─▶ delta  ──commit──────▶ C ◀─ merge(delta, staleness)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from examples._shared.data import Array

ELASTICITY = 0.2
MOMENTUM = 0.9


@dataclass
class Replica:
    """The worker's part of DOWNPOUR: it goes on from the centre, and commits how far it has come."""

    parameters: Array
    gradient: Callable[[Array], Array]  # of the next batch
    learning_rate: float
    window: int

    def round(self, pull: Callable[[], Array]) -> Array:
        """Train for a window. Return the delta to commit."""
        begin = pull()
        self.parameters = begin
        self.train()
        return self.parameters - begin

    def train(self) -> None:
        for _ in range(self.window):
            self.parameters = self.parameters - self.learning_rate * self.gradient(self.parameters)


class AdagReplica(Replica):
    """The worker's part of ADAG: it commits the mean of the steps in its window, not their sum."""

    def round(self, pull: Callable[[], Array]) -> Array:
        return super().round(pull) / self.window


class ElasticReplica(Replica):
    """The worker's part of AEASGD: after a window it and the centre move towards each other."""

    def round(self, pull: Callable[[], Array]) -> Array:
        self.train()
        elastic = ELASTICITY * (self.parameters - pull())
        self.parameters = self.parameters - elastic
        return elastic


class MomentumReplica(ElasticReplica):
    """The worker's part of EAMSGD: AEASGD with Nesterov's momentum between the exchanges."""

    velocity: Array | float = 0.0

    def train(self) -> None:
        for _ in range(self.window):
            ahead = MOMENTUM * self.velocity
            gradient = self.gradient(self.parameters + ahead)
            self.velocity = ahead - self.learning_rate * gradient
            self.parameters = self.parameters + self.velocity


class Commit(NamedTuple):
    """A commit: its worker, and how many updates that worker had seen at its pull."""

    worker: int
    seen: int


@dataclass
class Centre:
    """The server's part of DOWNPOUR, ADAG, AEASGD and EAMSGD: it adds each commit."""

    parameters: Array
    workers: int
    record: list[Commit] = field(default_factory=list)
    is_in_step: ClassVar[bool] = False  # if so, a pull waits until all have committed as often

    def commit(self, worker: int, delta: Array, seen: int) -> None:
        self.merge(delta, staleness=len(self.record) - seen)
        self.record.append(Commit(worker, seen))

    def merge(self, delta: Array, staleness: int) -> None:
        self.parameters = self.parameters + delta

    @property
    def staleness(self) -> list[int]:
        """Return, for each commit, the number of updates since its worker's pull."""
        return [number - commit.seen for number, commit in enumerate(self.record)]


class DynSgdCentre(Centre):
    """The server's part of DynSGD: the staler a commit, the less of it the centre takes."""

    def merge(self, delta: Array, staleness: int) -> None:
        super().merge(delta / (staleness + 1), staleness)


@dataclass
class AveragingCentre(Centre):
    """A centre that moves to the mean of all workers when all have committed."""

    waiting: list[Array] = field(default_factory=list)
    is_in_step = True

    def merge(self, delta: Array, staleness: int) -> None:
        self.waiting.append(delta)
        if len(self.waiting) == self.workers:
            super().merge(np.sum(self.waiting, axis=0) / self.workers, staleness)
            self.waiting = []


class Rule(NamedTuple):
    """An optimizer: its two parts, and how a worker trains."""

    worker: type[Replica]
    server: type[Centre]
    rate: float  # a worker's learning rate, divided by that of the problem
    window: int  # how many steps a worker makes between two commits


RULES = {
    "DOWNPOUR": Rule(Replica, Centre, 1, 5),
    "ADAG": Rule(AdagReplica, Centre, 4, 5),
    "DynSGD": Rule(Replica, DynSgdCentre, 1.4, 5),
    "AEASGD": Rule(ElasticReplica, Centre, 4, 10),
    "EAMSGD": Rule(MomentumReplica, Centre, 0.4, 10),
    "averaging": Rule(Replica, AveragingCentre, 4, 30),
}
