"""The serial truth: batch norm of a whole batch, its derivatives as a matrix, and training with it."""

import numpy as np

from examples._shared.data import Array, Data
from examples._shared.networks import backward, cross_entropy, first_parameters, forward


def batch_norm(x: Array) -> tuple[Array, Array]:
    """Return the outputs and, for each feature, the derivative of each of them by each input."""
    deviation = np.sqrt(x.var(axis=0) + 1e-5)
    normal = (x - x.mean(axis=0)) / deviation
    products = np.einsum("if,jf->fij", normal, normal)
    return normal, (np.eye(len(x)) - (1 + products) / len(x)) / deviation[:, None, None]


def batch_norm_and_gradient(x: Array, gradient: Array) -> tuple[Array, Array]:
    """Return the outputs, and the gradient by the inputs."""
    outputs, derivatives = batch_norm(x)
    return outputs, np.einsum("fij,if->jf", derivatives, gradient)


def train(digits: Data, steps: int, batch: int, rate: float) -> tuple[list[float], Array]:
    """Return the losses and the parameters of a network that learns to read digits."""
    losses = []
    parameters = first_parameters((64, 32, 10))
    for step in range(steps):
        inputs = digits.batch(step, batch)
        below = parameters[: 65 * 32]
        above = parameters[65 * 32 :]
        hidden = forward((64, 32), below, inputs.inputs, is_last=False)
        scores = forward((32, 10), above, batch_norm(hidden[-1])[0])
        loss, gradient = cross_entropy(scores[-1], inputs)
        gradient, by_above = backward((32, 10), above, scores, gradient)
        _, gradient = batch_norm_and_gradient(hidden[-1], gradient)
        _, by_below = backward((64, 32), below, hidden, gradient, is_last=False)
        parameters = parameters - rate * np.concatenate([by_below, by_above])
        losses.append(loss)
    return losses, parameters
