"""The serial truth: averaging, in one process."""

from collections.abc import Sequence

from examples._shared.data import Array
from examples.systems.elephas.algorithm import Model, Partition, train


def average_alone(model: Model, partitions: Sequence[Partition], rounds: Sequence[range]) -> Array:
    """Train a copy on every partition in each round, and go on from the mean of the copies."""
    parameters = model.parameters
    for steps in rounds:
        copies = [train(model, partition, parameters, steps) for partition in partitions]
        parameters = parameters + sum(copy - parameters for copy in copies) / len(copies)
    return parameters
