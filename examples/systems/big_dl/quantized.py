"""The trained network in int8. Weights and activations are whole numbers, with a scale for each row."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from examples._shared import networks
from examples._shared.data import Array, Data
from examples._shared.networks import Widths


class Layer(NamedTuple):
    """A layer of the network: a row of weights per output."""

    weights: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    biases: npt.NDArray[np.float32]


def quantize(widths: Widths, parameters: Array) -> list[Layer]:
    """Return the layers of a trained network."""
    layers = []
    for matrix in networks.matrices(widths, parameters):
        weights, scales = quantize_rows(matrix[:-1].T)
        layers.append(Layer(weights, scales.astype(np.float32), matrix[-1].astype(np.float32)))
    return layers


def quantize_rows(matrix: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Return each row as multiples of its scale, from -127 to 127."""
    scales = np.abs(matrix).max(axis=1) / 127
    scales[scales == 0] = 1
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def accuracy(layers: Sequence[Layer], digits: Data) -> float:
    """Return the share of images whose digit gets the highest score; products are added up in int32."""
    values = digits.inputs
    for i, layer in enumerate(layers):
        inputs, scales = quantize_rows(np.tanh(values) if i else values)
        products = inputs.astype(np.int32) @ layer.weights.T.astype(np.int32)
        values = products * scales[:, None] * layer.scales + layer.biases
    return float((values.argmax(axis=1) == digits.targets).mean())
