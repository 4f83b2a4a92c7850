"""The user's model. It asks for a layer's parameters where it needs them, and hands over its gradient."""

from itertools import pairwise
from typing import Protocol

from examples._shared import networks
from examples._shared.data import Array

WIDTHS = (64, 1024, 64, 10)
BATCH = 64


class Store(Protocol):
    """The store of parameters and gradients, which are whole, or in parts."""

    def layer(self, i: int) -> Array: ...
    def give(self, i: int, gradient: Array) -> None: ...


def first_layers() -> list[Array]:
    """Return the parameters to begin with, a flat vector for each layer."""
    parameters = networks.first_parameters(WIDTHS)
    return [matrix.flatten() for matrix in networks.matrices(WIDTHS, parameters)]


def forward(store: Store, images: Array) -> list[Array]:
    """Return the images and what each layer makes of them."""
    values = [images]
    for i, widths in enumerate(pairwise(WIDTHS)):
        values += networks.forward(widths, store.layer(i), values[-1], _is_last(i))[1:]
    return values


def backward(store: Store, values: list[Array], gradient: Array) -> None:
    """Hand over the gradient of each layer, from the last one to the first."""
    for i in reversed(range(len(WIDTHS) - 1)):
        gradient = _backward(store, i, values[i : i + 2], gradient)


def _backward(store: Store, i: int, values: list[Array], gradient: Array) -> Array:
    """Compute one layer; a function of its own, so that no variable keeps that layer for longer."""
    gradient, of_layer = networks.backward(
        WIDTHS[i : i + 2], store.layer(i), values, gradient, _is_last(i)
    )
    store.give(i, of_layer)
    return gradient


def _is_last(i: int) -> bool:
    return i == len(WIDTHS) - 2
