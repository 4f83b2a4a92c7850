"""The server's parts of optimizers of dist-keras whose workers train apart."""

from dataclasses import dataclass, field

import numpy as np

from examples._shared.data import Array
from examples.systems.dist_keras.algorithm import Centre


@dataclass
class AveragingCentre(Centre):
    """A centre that moves to the mean of all workers when all have committed."""

    waiting: list[Array] = field(default_factory=list)
    is_in_step = True

    def merge(self, delta: Array, staleness: int) -> None:
        self.waiting.append(delta)
        if len(self.waiting) == self.workers:
            super().merge(np.mean(self.waiting, axis=0), staleness)
            self.waiting = []


@dataclass
class EnsembleCentre(Centre):
    """A centre that stays where it is, and keeps every worker's model."""

    kept: list[Array] = field(default_factory=list)

    def merge(self, delta: Array, staleness: int) -> None:
        self.kept.append(self.parameters + delta)

    @property
    def models(self) -> list[Array]:
        return self.kept
