"""Data to learn from: inputs, each with its target."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Keys = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Data:
    """Rows of inputs, and a target for each: the number of its class, or the numbers to predict."""

    inputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> "Data":
        return Data(self.inputs[rows], self.targets[rows])

    def batch(self, step: int, size: int, part: slice = slice(None)) -> "Data":
        """Return the batch of this step, or a part of it. The same step always draws the same batch."""
        return self[np.random.default_rng([0, step]).choice(len(self), size)[part]]

    def parts(self, n: int) -> list["Data"]:
        """Return n parts of the rows: every n-th row, from each of the first n on."""
        return [self[slice(i, None, n)] for i in range(n)]

    def split(self) -> tuple["Data", "Data"]:
        """Return the rows to train on, and the fifth of all rows that is held out. The split is random."""
        order = np.random.default_rng(0).permutation(len(self))
        n_held_out = len(self) // 5
        return self[order[n_held_out:]], self[order[:n_held_out]]
