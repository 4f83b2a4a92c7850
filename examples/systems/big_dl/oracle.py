"""The serial truth: synchronous SGD with momentum, in one process, on whole batches."""

from collections.abc import Iterator

import numpy as np

from examples._shared.data import Array
from examples._shared.problem import Problem


def train_alone(problem: Problem, momentum: float) -> Iterator[Array]:
    """Yield the parameters after each iteration."""
    parameters = problem.first_parameters
    velocity = np.zeros_like(parameters)
    for step in range(problem.steps):
        _, gradient = problem.loss_and_gradient(parameters, problem.batch(step))
        velocity = momentum * velocity + gradient
        parameters = parameters - problem.learning_rate * velocity
        yield parameters
