"""The optimizers of dist-keras, each in two parts: one of the worker and one of the server.

Replica, at the worker                                 Centre, at the server
pull C ─▶ train for a window ─▶ delta  ──commit──────▶ C ◀─ merge(delta, staleness)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from examples._shared.digits import Array

ELASTICITY, MOMENTUM = 0.2, 0.9


@dataclass
class Replica:
    """The worker's side of DOWNPOUR: goes on from the centre, and commits how far it has come."""

    parameters: Array
    gradient: Callable[[Array], Array]  # of the next batch
    learning_rate: float
    window: int

    def round(self, pull: Callable[[], Array]) -> Array:
        """Train for a window; returns what is to be committed."""
        self.parameters = begin = pull()
        self.train()
        return self.parameters - begin

    def train(self) -> None:
        for _ in range(self.window):
            self.parameters = self.parameters - self.learning_rate * self.gradient(self.parameters)


class AdagReplica(Replica):
    """Commits the mean of the steps in its window, not their sum."""

    def round(self, pull: Callable[[], Array]) -> Array:
        return super().round(pull) / self.window


class ElasticReplica(Replica):
    """AEASGD: goes its own way, is drawn to the centre, and draws it as much."""

    def round(self, pull: Callable[[], Array]) -> Array:
        self.train()
        elastic = ELASTICITY * (self.parameters - pull())
        self.parameters = self.parameters - elastic
        return elastic


class MomentumReplica(ElasticReplica):
    """EAMSGD: the same, by Nesterov's momentum between the exchanges."""

    velocity: Array | float = 0.0

    def train(self) -> None:
        for _ in range(self.window):
            ahead = MOMENTUM * self.velocity
            gradient = self.gradient(self.parameters + ahead)
            self.velocity = ahead - self.learning_rate * gradient
            self.parameters = self.parameters + self.velocity


class Commit(NamedTuple):
    """Whose it was, how many updates that worker had seen at its pull, and how many had come since."""

    worker: int
    seen: int
    staleness: int


@dataclass
class Centre:
    """The server's side of DOWNPOUR, ADAG, AEASGD and EAMSGD: adds what is committed."""

    parameters: Array
    workers: int
    record: list[Commit] = field(default_factory=list)
    is_in_step: ClassVar[bool] = False  # if so, a pull waits until all have committed as often

    def commit(self, worker: int, delta: Array, seen: int) -> None:
        staleness = len(self.record) - seen
        self.merge(delta, staleness)
        self.record.append(Commit(worker, seen, staleness))

    def merge(self, delta: Array, staleness: int) -> None:
        self.parameters = self.parameters + delta

    @property
    def models(self) -> list[Array]:
        return [self.parameters]


class DynSgdCentre(Centre):
    """Takes the less of a commit the staler it is."""

    def merge(self, delta: Array, staleness: int) -> None:
        super().merge(delta / (staleness + 1), staleness)
