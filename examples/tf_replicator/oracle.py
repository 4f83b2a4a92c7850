"""The serial truth: batch norm of a whole batch, its derivative written as a matrix, and training with it."""

import numpy as np

from examples._shared import networks
from examples._shared.digits import Array, Digits


def batch_norm(x: Array) -> tuple[Array, Array]:
    """Return the outputs and, for each feature, their derivatives by all inputs, row by row."""
    deviation = np.sqrt(x.var(axis=0) + 1e-5)
    normal = (x - x.mean(axis=0)) / deviation
    among_rows = np.einsum("if,jf->fij", normal, normal)
    return normal, (np.eye(len(x)) - (1 + among_rows) / len(x)) / deviation[:, None, None]


def backward(derivatives: Array, gradient: Array) -> Array:
    """Return the gradient by the inputs."""
    return np.einsum("fij,if->jf", derivatives, gradient)


def train(digits: Digits, steps: int, batch: int, rate: float) -> tuple[list[float], Array]:
    """Return the losses and the parameters of a network that learns to read digits."""
    losses, parameters = [], networks.first_parameters((64, 32, 10))
    for step in range(steps):
        inputs = digits.batch(step, batch)
        below, above = parameters[: 65 * 32], parameters[65 * 32 :]
        hidden = networks.forward((64, 32), below, inputs.images, is_last=False)
        normal, derivatives = batch_norm(hidden[-1])
        scores = networks.forward((32, 10), above, normal)
        loss, gradient = networks.cross_entropy(scores[-1], inputs)
        gradient, of_above = networks.backward((32, 10), above, scores, gradient)
        gradient = backward(derivatives, gradient)
        _, of_below = networks.backward((64, 32), below, hidden, gradient, is_last=False)
        parameters = parameters - rate * np.concatenate([of_below, of_above])
        losses.append(loss)
    return losses, parameters
