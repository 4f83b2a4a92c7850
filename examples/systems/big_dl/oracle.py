"""The serial truth: synchronous SGD with momentum, in one process, on whole batches."""

import numpy as np

from examples._shared import networks
from examples._shared.data import Array
from examples._shared.problem import Problem


def train_alone(problem: Problem, momentum: float) -> Array:
    """Return the parameters after all iterations."""
    parameters = problem.first_parameters
    velocity = np.zeros_like(parameters)
    for step in range(problem.steps):
        gradient = networks.gradient(problem.widths, parameters, problem.batch(step))
        velocity = momentum * velocity + gradient
        parameters = parameters - problem.learning_rate * velocity
    return parameters
