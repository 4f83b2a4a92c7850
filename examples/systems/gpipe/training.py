"""The training: the same for the pipeline and for everything that it is compared with."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from examples._shared.data import Data
from examples.systems.gpipe.algorithm import costs, cut


@dataclass(frozen=True)
class Training:
    """A network, its digits, and how it is trained."""

    digits: Data
    steps: int
    widths: tuple[int, ...] = (64, 48, 40, 32, 32, 24, 24, 16, 10)
    batch_size: int = 64
    learning_rate: float = 0.1

    def batch(self, step: int) -> Data:
        return self.digits.batch(step, self.batch_size)

    def cut(self, stages: int) -> list[tuple[int, int]]:
        """Return each stage's first layer, and where its layers end."""
        return list(pairwise(cut(costs(self.widths), stages)))


class Run(NamedTuple):
    """A training from the first parameters on. A stage may be killed in it."""

    micro_batches: int
    rematerializes: bool
    is_disturbed: bool = False
