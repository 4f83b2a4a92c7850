"""Networks: layers in a row, whose parameters are in one flat vector.

A `Network` computes outputs and gradients of numpy arrays. `Dense` does so by hand. `TorchNetwork`, in a
module of its own, wraps the layers of a `torch.nn.Sequential`. Systems that train networks take either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from examples._shared.data import Array, Data

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
        """Return random weights and biases of zero. A layer with more inputs has smaller weights."""
        parameters = np.zeros(sum(self.sizes))
        rng = np.random.default_rng(seed)
        for matrix in self.matrices(parameters):
            matrix[:-1] = rng.normal(size=matrix[:-1].shape) / (len(matrix) - 1) ** 0.5
        return parameters

    def part(self, first: int, end: int) -> Dense:
        is_last = self.is_last and end == len(self.sizes)
        return Dense(self.widths[first : end + 1], is_last)

    def forward(self, parameters: Array, inputs: Array) -> list[Array]:
        values = [inputs]
        matrices = self.matrices(parameters)
        for layer, matrix in enumerate(matrices, start=1):
            outputs = values[-1] @ matrix[:-1] + matrix[-1]
            has_tanh = not self.is_last or layer < len(matrices)
            values.append(np.tanh(outputs) if has_tanh else outputs)
        return values

    def backward(
        self, parameters: Array, values: list[Array], gradient: Array
    ) -> tuple[Array, Array]:
        by_parameters = np.empty_like(parameters)
        own = self.matrices(parameters)
        by_layers = self.matrices(by_parameters)
        for i in reversed(range(len(own))):
            if not self.is_last or i < len(own) - 1:
                gradient = gradient * (1 - values[i + 1] ** 2)
            by_layers[i][:-1] = values[i].T @ gradient
            by_layers[i][-1] = gradient.sum(axis=0)
            gradient = gradient @ own[i][:-1].T
        return gradient, by_parameters

    def matrices(self, parameters: Array) -> list[Array]:
        """Return each layer's parameters as a view: a row of weights per input, a last row of biases."""
        shapes = [(inputs + 1, outputs) for inputs, outputs in pairwise(self.widths)]
        layers = layers_of(self, parameters)
        return [layer.reshape(shape) for layer, shape in zip(layers, shapes, strict=True)]

    def in_torch(self, parameters: Array) -> Any:
        """Return the same network as a `torch.nn.Sequential` of float64."""
        from torch import from_numpy, nn

        modules: list[Any] = []
        for matrix in self.matrices(parameters.copy()):
            linear = nn.Linear(len(matrix) - 1, matrix.shape[1]).double()
            rows = from_numpy(matrix)
            linear.load_state_dict({"weight": rows[:-1].T, "bias": rows[-1]})
            modules += [linear, nn.Tanh()]
        return nn.Sequential(*modules[:-1])


def layers_of(network: Network, parameters: Array) -> list[Array]:
    """Return each layer's parameters, as views of the flat vector."""
    return np.split(parameters, np.cumsum(network.sizes)[:-1])


def softmax(scores: Array) -> Array:
    """Return the chances of classes or actions, whose scores are on the last axis."""
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = chances / chances.sum(axis=-1, keepdims=True)
    return result


def cross_entropy(scores: Array, data: Data) -> tuple[float, Array]:
    """Return the mean loss of a classifier, and its gradient by the scores."""
    chances = softmax(scores)
    truth = np.eye(scores.shape[1])[data.targets]
    return float(-np.log((chances * truth).sum(axis=1)).mean()), (chances - truth) / len(scores)


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


def gradient(network: Network, parameters: Array, data: Data) -> Array:
    """Return the gradient of the mean loss of a classifier, flat like the parameters."""
    return loss_and_gradient(network, parameters, data)[1]


def accuracy(network: Network, parameters: Array, data: Data) -> float:
    """Return the share of inputs whose class gets the highest score."""
    answers = network.forward(parameters, data.inputs)[-1].argmax(axis=1)
    return float((answers == data.targets).mean())
