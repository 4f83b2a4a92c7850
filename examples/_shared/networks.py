"""Networks: layers in a row, whose parameters are in one flat vector.

A `Network` computes outputs and gradients of numpy arrays. `Dense` does so by hand. `TorchNetwork`, in a
module of its own, wraps the layers of a `torch.nn.Sequential`. Systems that train networks take either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from examples._shared.data import Array, Data

Widths = Sequence[int]
Loss = Callable[[Array, Data], tuple[float, Array]]
"""A function of a network's outputs and the data: the mean loss, and its gradient by the outputs."""


class Network(Protocol):
    """Layers in a row.

    Attributes:
        sizes: The number of parameters of each layer.
    """

    @property
    def sizes(self) -> list[int]: ...

    def first_parameters(self, seed: int = 0) -> Array:
        """Return the parameters to begin with, in one flat vector."""

    def part(self, first: int, end: int) -> Network:
        """Return the layers from `first` to `end`, without the latter, as a network of their own."""

    def forward(self, parameters: Array, inputs: Array) -> list[Array]:
        """Return the inputs and the outputs of each layer."""

    def backward(
        self, parameters: Array, values: list[Array], gradient: Array
    ) -> tuple[Array, Array]:
        """Turn the gradient by the last outputs into the gradients by the inputs and by the parameters.

        Args:
            values: The list that `forward` has returned for these parameters.
        """


@dataclass(frozen=True)
class Dense:
    """Dense layers, forward and backward by hand.

    Parameters and inputs with one more axis, in front of the others, are several networks.

    Attributes:
        widths: How many numbers go from layer to layer: (64, 10) is softmax regression.
        is_last: False for a part of a network without the last layer, which is the only one without tanh.
    """

    widths: tuple[int, ...]
    is_last: bool = True

    @property
    def sizes(self) -> list[int]:
        return [(inputs + 1) * outputs for inputs, outputs in pairwise(self.widths)]

    def first_parameters(self, seed: int = 0) -> Array:
        return first_parameters(self.widths, seed)

    def part(self, first: int, end: int) -> Dense:
        is_last = self.is_last and end == len(self.sizes)
        return Dense(self.widths[first : end + 1], is_last)

    def forward(self, parameters: Array, inputs: Array) -> list[Array]:
        return forward(self.widths, parameters, inputs, self.is_last)

    def backward(
        self, parameters: Array, values: list[Array], gradient: Array
    ) -> tuple[Array, Array]:
        return backward(self.widths, parameters, values, gradient, self.is_last)


def layers_of(network: Network, parameters: Array) -> list[Array]:
    """Return each layer's parameters, as views of the flat vector."""
    return np.split(parameters, np.cumsum(network.sizes)[:-1], axis=-1)


def matrices(widths: Widths, parameters: Array) -> list[Array]:
    """Return each dense layer's parameters as a view: a row of weights per input, a last row of biases."""
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
    """Return the inputs and the outputs of each dense layer. The last outputs are the scores."""
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


def cross_entropy(scores: Array, data: Data) -> tuple[float, Array]:
    """Return the mean loss of a classifier, and its gradient by the scores."""
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances = chances / chances.sum(axis=-1, keepdims=True)
    truth = np.eye(scores.shape[-1])[data.targets]
    return float(-np.log((chances * truth).sum(-1)).mean()), (chances - truth) / scores.shape[-2]


def squared_error(outputs: Array, data: Data) -> tuple[float, Array]:
    """Return the mean squared error of a regression, and its gradient by the outputs."""
    difference = outputs - data.targets.reshape(outputs.shape)
    return float((difference**2).mean()), 2 * difference / difference.size


def loss_and_gradient(
    network: Network, parameters: Array, data: Data, loss: Loss = cross_entropy
) -> tuple[float, Array]:
    """Return the mean loss and its gradient, flat like the parameters."""
    values = network.forward(parameters, data.inputs)
    value, by_outputs = loss(values[-1], data)
    return value, network.backward(parameters, values, by_outputs)[1]


def gradient(network: Network | Widths, parameters: Array, data: Data) -> Array:
    """Return the gradient of the mean loss of a classifier, flat like the parameters."""
    return loss_and_gradient(_network(network), parameters, data)[1]


def accuracy(network: Network | Widths, parameters: Array, data: Data) -> float:
    """Return the share of inputs whose class gets the highest score."""
    answers = _network(network).forward(parameters, data.inputs)[-1].argmax(axis=1)
    return float((answers == data.targets).mean())


def _network(network: Network | Widths) -> Network:
    return Dense(tuple(network)) if isinstance(network, Sequence) else network


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
