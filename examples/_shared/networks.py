"""Networks of dense layers, forward and backward by hand, with all parameters in one flat vector.

`widths` says how many numbers go from layer to layer: (64, 10) is softmax regression. All layers except the
last end in tanh. `is_last=False` is for a part of a network that doesn't have the last layer, for example
widths[:3]. Arrays with one more axis, in front of the others, are several networks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from examples._shared.digits import Array, Digits

Widths = Sequence[int]


def matrices(widths: Widths, parameters: Array) -> list[Array]:
    """Return each layer's parameters as a view: a row of weights per input, and a last row of biases."""
    shapes = [(*parameters.shape[:-1], i + 1, outputs) for i, outputs in pairwise(widths)]
    ends = np.cumsum([rows * columns for *_, rows, columns in shapes])
    parts = np.split(parameters, ends, axis=-1)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]


def first_parameters(widths: Widths, seed: int = 0) -> Array:
    """Return random weights and biases of zero. A layer with more inputs has smaller weights."""
    parameters = np.zeros(sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths)))
    rng = np.random.default_rng(seed)
    for matrix in matrices(widths, parameters):
        matrix[:-1] = rng.normal(size=matrix[:-1].shape) / (len(matrix) - 1) ** 0.5
    return parameters


def forward(widths: Widths, parameters: Array, inputs: Array, is_last: bool = True) -> list[Array]:
    """Return the inputs and the outputs of each layer. The last outputs are the scores of the digits."""
    values = [inputs]
    for layer, matrix in enumerate(matrices(widths, parameters), start=1):
        outputs = values[-1] @ matrix[..., :-1, :] + matrix[..., -1:, :]
        values.append(outputs if is_last and layer == len(widths) - 1 else np.tanh(outputs))
    return values


def backward(
    widths: Widths, parameters: Array, values: list[Array], gradient: Array, is_last: bool = True
) -> tuple[Array, Array]:
    """Turn the gradient by the outputs into the gradients by the inputs and by the parameters."""
    of_parameters = np.empty_like(parameters)
    own = matrices(widths, parameters)
    of_layers = matrices(widths, of_parameters)
    for i in reversed(range(len(own))):
        if not is_last or i < len(own) - 1:
            gradient = gradient * (1 - values[i + 1] ** 2)
        of_layers[i][..., :-1, :] = values[i].swapaxes(-1, -2) @ gradient
        of_layers[i][..., -1, :] = gradient.sum(axis=-2)
        gradient = gradient @ own[i][..., :-1, :].swapaxes(-1, -2)
    return gradient, of_parameters


def cross_entropy(scores: Array, digits: Digits) -> tuple[float, Array]:
    """Return the mean loss and its gradient by the scores."""
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances = chances / chances.sum(axis=-1, keepdims=True)
    truth = np.eye(10)[digits.labels]
    return float(-np.log((chances * truth).sum(-1)).mean()), (chances - truth) / scores.shape[-2]


def gradient(widths: Widths, parameters: Array, digits: Digits) -> Array:
    """Return the gradient of the mean loss, flat like the parameters."""
    values = forward(widths, parameters, digits.images)
    return backward(widths, parameters, values, cross_entropy(values[-1], digits)[1])[1]


def accuracy(widths: Widths, parameters: Array, digits: Digits) -> float:
    """Return the share of images whose digit gets the highest score."""
    answers = forward(widths, parameters, digits.images)[-1].argmax(axis=1)
    return float((answers == digits.labels).mean())


def in_torch(widths: Widths, parameters: Array) -> Any:
    """Return the same network as a `torch.nn.Sequential` of float64."""
    from torch import from_numpy, nn

    modules: list[Any] = []
    for matrix in matrices(widths, parameters.copy()):
        linear = nn.Linear(len(matrix) - 1, matrix.shape[1]).double()
        rows = from_numpy(matrix)
        linear.load_state_dict({"weight": rows[:-1].T, "bias": rows[-1]})
        modules += [linear, nn.Tanh()]
    return nn.Sequential(*modules[:-1])
