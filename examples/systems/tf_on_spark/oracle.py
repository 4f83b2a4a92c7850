"""The serial truth: one process that has all rows of a step."""

from collections.abc import Sequence

from examples._shared.data import Array
from examples.systems.tf_on_spark.algorithm import Row
from examples.systems.tf_on_spark.main_fun import Args, gradient

Steps = Sequence[Sequence[Sequence[Row]]]
"""The rows of each batch, by step and worker."""


def train_alone(args: Args, steps: Steps) -> Array:
    """Follow the mean gradient of all rows of each step."""
    parameters = args.parameters
    for batches in steps:
        n_rows = sum(map(len, batches))
        if n_rows:
            total = sum(gradient(args.widths, parameters, batch) for batch in batches)
            parameters = parameters - args.learning_rate * (total / n_rows)
    return parameters
