"""scikit-learn's 1,797 handwritten digits: what the systems in this folder learn to read."""

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

    def __getitem__(self, which: slice | npt.NDArray[np.int64]) -> "Digits":
        return Digits(self.images[which], self.labels[which])

    def batch(self, step: int, size: int, part: slice = slice(None)) -> "Digits":
        """Return the batch of this step, or a part; every call with it draws the same one."""
        return self[np.random.default_rng([0, step]).choice(len(self), size)[part]]


def load() -> tuple[Digits, Digits]:
    """Return those to train on and those held out: a fifth."""
    from sklearn import datasets  # which takes a second, and workers get the data without

    images, labels = datasets.load_digits(return_X_y=True)
    digits = Digits(images / 16, labels.astype(np.int64))
    order = np.random.default_rng(0).permutation(len(digits))
    return digits[order[len(digits) // 5 :]], digits[order[: len(digits) // 5]]
