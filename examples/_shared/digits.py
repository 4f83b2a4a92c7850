"""scikit-learn's 1,797 handwritten digits, which the examples learn to read."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Digits:
    """Images, one per row with 64 brightnesses from 0 to 1, and the digits they show."""

    images: Array
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> "Digits":
        return Digits(self.images[rows], self.labels[rows])

    def batch(self, step: int, size: int, part: slice = slice(None)) -> "Digits":
        """Return the batch of this step, or a part of it. The same step always draws the same batch."""
        return self[np.random.default_rng([0, step]).choice(len(self), size)[part]]


def load() -> tuple[Digits, Digits]:
    """Return the digits to train on, and the fifth of all digits that is held out."""
    # The import takes a second. Workers don't need it: they get the data in their arguments.
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    digits = Digits(images / 16, labels.astype(np.int64))
    order = np.random.default_rng(0).permutation(len(digits))
    n_held_out = len(digits) // 5
    return digits[order[n_held_out:]], digits[order[:n_held_out]]
