"""The serial truth: batch norm of a whole batch, its derivatives as a matrix, and training with it."""

import numpy as np

from examples._shared.data import Array
from examples._shared.problem import Problem


def batch_norm(x: Array) -> tuple[Array, Array]:
    """Return the outputs and, for each feature, the derivative of each of them by each input."""
    deviation = np.sqrt(x.var(axis=0) + 1e-5)
    normal = (x - x.mean(axis=0)) / deviation
    products = np.einsum("if,jf->fij", normal, normal)
    return normal, (np.eye(len(x)) - (1 + products) / len(x)) / deviation[:, None, None]


def train(problem: Problem) -> tuple[list[float], Array]:
    """Return the losses and the parameters of a network with batch norm after its first layer."""
    losses = []
    parameters = problem.first_parameters
    first = problem.network.part(0, 1)
    rest = problem.network.part(1, len(problem.network.sizes))
    for step in range(problem.steps):
        data = problem.batch(step)
        below, above = np.split(parameters, [sum(first.sizes)])
        hidden = first.forward(below, data.inputs)
        normal, derivatives = batch_norm(hidden[-1])
        values = rest.forward(above, normal)
        loss, gradient = problem.loss_function(values[-1], data)
        gradient, by_above = rest.backward(above, values, gradient)
        gradient = np.einsum("fij,if->jf", derivatives, gradient)
        _, by_below = first.backward(below, hidden, gradient)
        parameters = parameters - problem.learning_rate * np.concatenate([by_below, by_above])
        losses.append(loss)
    return losses, parameters
