"""Of what the examples of distributed training share: the data, and networks whose gradients are by hand."""

from __future__ import annotations

import numpy as np
import pytest

from examples._shared import digits, networks
from examples._shared.digits import Digits


@pytest.fixture(scope="module")
def loaded() -> tuple[Digits, Digits]:
    return digits.load()


def test_digits_are_split_without_overlap(loaded) -> None:
    training, held_out = loaded

    assert len(training) + len(held_out) == 1797
    assert len(held_out) == 359
    everything = np.concatenate([training.images, held_out.images])
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.parametrize("widths", [(64, 10), (64, 5, 4, 10)])
def test_gradient_is_the_slope_of_the_loss(loaded, widths) -> None:
    few = loaded[0].batch(step=0, size=5)
    parameters = networks.first_parameters(widths)
    direction = np.random.default_rng(2).normal(size=len(parameters))
    tiny = 1e-6

    def loss(at) -> float:
        return networks.cross_entropy(networks.forward(widths, at, few.images)[-1], few)[0]

    rise = loss(parameters + tiny * direction) - loss(parameters - tiny * direction)
    slope = networks.gradient(widths, parameters, few) @ direction
    assert slope == pytest.approx(rise / (2 * tiny), rel=1e-6)


def test_several_networks_have_the_bits_that_each_has_alone() -> None:
    widths, rng = (64, 7, 10), np.random.default_rng(3)
    parameters = np.stack([networks.first_parameters(widths, seed) for seed in range(3)])
    together = Digits(rng.random((3, 12, 64)), rng.integers(10, size=(3, 12)))

    gradients = networks.gradient(widths, parameters, together)

    for i, gradient in enumerate(gradients):
        alone = Digits(together.images[i], together.labels[i])
        assert np.array_equal(gradient, networks.gradient(widths, parameters[i], alone))
