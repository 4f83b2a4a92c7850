"""scikit-learn's 1,797 handwritten digits, which the examples learn to read."""

import numpy as np

from examples._shared.data import Data


def load() -> tuple[Data, Data]:
    """Return the digits to train on, and the fifth of all digits that is held out.

    Inputs are images, one per row with 64 brightnesses from 0 to 1. Targets are the digits that they show.
    """
    # The import takes a second. Workers don't need it: they get the data in their arguments.
    from sklearn import datasets

    images, digits = datasets.load_digits(return_X_y=True)
    return Data(images / 16, digits.astype(np.int64)).split()
