"""Optimizers of dist-keras whose workers train apart: what a server does with what they commit."""

from dataclasses import dataclass, field

import numpy as np

from examples._shared.digits import Array
from examples.systems.dist_keras.algorithm import Centre


@dataclass
class AveragingCentre(Centre):
    """Goes to the mean of all workers, when all have committed."""

    waiting: list[Array] = field(default_factory=list)
    is_in_step = True

    def merge(self, delta: Array, staleness: int) -> None:
        self.waiting.append(delta)
        if len(self.waiting) == self.workers:
            super().merge(np.mean(self.waiting, axis=0), staleness)
            self.waiting = []


@dataclass
class EnsembleCentre(Centre):
    """Stays where it is, and keeps every worker's model."""

    kept: list[Array] = field(default_factory=list)

    def merge(self, delta: Array, staleness: int) -> None:
        self.kept.append(self.parameters + delta)

    @property
    def models(self) -> list[Array]:
        return self.kept
