"""Of what the examples of distributed training share: the data, and networks whose gradients are by hand."""

from __future__ import annotations

import numpy as np
import pytest

from examples._shared import digits, networks
from examples._shared.data import Data


@pytest.fixture(scope="module")
def loaded() -> tuple[Data, Data]:
    return digits.load()


def test_digits_are_split_without_overlap(loaded) -> None:
    training, held_out = loaded

    assert len(training) + len(held_out) == 1797
    assert len(held_out) == 359
    everything = np.concatenate([training.inputs, held_out.inputs])
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.parametrize("widths", [(64, 10), (64, 5, 4, 10)])
def test_gradient_is_the_slope_of_the_loss(loaded, widths) -> None:
    few = loaded[0].batch(step=0, size=5)
    network = networks.Dense(widths)
    parameters = network.first_parameters()
    direction = np.random.default_rng(2).normal(size=len(parameters))
    tiny = 1e-6

    def loss(at) -> float:
        return networks.loss_and_gradient(network, at, few)[0]

    rise = loss(parameters + tiny * direction) - loss(parameters - tiny * direction)
    slope = networks.gradient(network, parameters, few) @ direction
    assert slope == pytest.approx(rise / (2 * tiny), rel=1e-6)


def test_a_network_of_torch_has_the_values_and_the_gradients_of_dense_layers(loaded) -> None:
    pytest.importorskip("torch")
    from examples._shared.torch_network import TorchNetwork

    few = loaded[0].batch(step=0, size=7)
    dense = networks.Dense((64, 5, 10))
    parameters = dense.first_parameters()
    network = TorchNetwork(dense.in_torch(parameters))

    by_torch = network.first_parameters()
    loss, gradient = networks.loss_and_gradient(network, by_torch, few)

    # torch has the weights of an output in a row, and here those of an input are.
    assert loss == pytest.approx(networks.loss_and_gradient(dense, parameters, few)[0])
    of_first, *_, of_last = networks.layers_of(network, gradient)
    expected = dense.matrices(networks.gradient(dense, parameters, few))
    assert np.allclose(of_first[:320].reshape(5, 64).T, expected[0][:-1])
    assert np.allclose(of_last[50:], expected[1][-1])


def test_parts_of_a_network_in_a_row_are_the_network(loaded) -> None:
    few = loaded[0].batch(step=0, size=7)
    network = networks.Dense((64, 5, 4, 10))
    parameters = network.first_parameters()
    layers = networks.layers_of(network, parameters)

    hidden = network.part(0, 2).forward(np.concatenate(layers[:2]), few.inputs)
    outputs = network.part(2, 3).forward(layers[2], hidden[-1])

    whole = network.forward(parameters, few.inputs)
    assert np.array_equal(hidden[-1], whole[2])
    assert np.array_equal(outputs[-1], whole[3])


def test_the_gradient_of_the_squared_error_is_its_slope() -> None:
    rng = np.random.default_rng(0)
    data = Data(rng.random((5, 2)), rng.random(5))
    outputs, direction = rng.random((5, 1)), rng.normal(size=(5, 1))
    tiny = 1e-6

    slope = (networks.squared_error(outputs, data)[1] * direction).sum()

    rise = networks.squared_error(outputs + tiny * direction, data)[0]
    rise -= networks.squared_error(outputs - tiny * direction, data)[0]
    assert slope == pytest.approx(rise / (2 * tiny), rel=1e-6)
