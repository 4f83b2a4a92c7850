from __future__ import annotations

import numpy as np

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Data
from examples.systems.big_dl import claims, quantized
from examples.systems.big_dl.algorithm import (
    FORWARD_BACKWARD,
    Task,
)
from examples.systems.big_dl.program import Result, Trained
from tests.examples.conftest import assert_refused, noise


def test_a_network_in_int8_has_weights_within_half_of_their_rows_scale_and_reads_the_same() -> None:
    widths, images = (64, 20, 10), noise(200)
    parameters = networks.first_parameters(widths)
    parameters[:64] = 0

    layers = quantized.quantize(widths, parameters)

    for layer, matrix in zip(layers, networks.matrices(widths, parameters), strict=True):
        off = layer.weights * layer.scales[:, None].astype(float) - matrix[:-1].T
        assert (np.abs(off) <= layer.scales[:, None] * 0.501).all()
        assert np.abs(layer.weights).max() == 127
    read = networks.forward(widths, parameters, images.inputs)[-1].argmax(axis=1)
    assert quantized.accuracy(layers, Data(images.inputs, read)) > 0.95


def test_checks_refuse_what_is_nearly_right() -> None:
    def result(parameters: list[float], made: int = 16, attempt: int = 1) -> Result:
        trained = Trained(np.array(parameters), [16, made], [1, attempt], 0.1)
        call = lp.edges.EdgeStats(
            "driver-0", "executor-0", "execute", 2, 2, 0, 0, 0, 100, 10, 0, 0, (), is_exact=True
        )
        return Result(trained, lp.edges.Edges((call,)))

    right, off = result([1.0, 2.0]), result([1.0, 2.0 + 1e-15])
    deadly = [Task(FORWARD_BACKWARD, 5, executor=1)]
    # An image is one pixel; a weight of another pixel makes the scale so large that all others are 0.
    shown = Data(np.eye(10, 64, 1), np.arange(10))
    parameters = np.vstack([np.full(10, 1e6), np.eye(64, 10)]).ravel()
    claims.check_kills(result([1.0, 2.0], 8, 2).trained, right.trained, deadly, 4)

    assert_refused(
        lambda: claims.check_parameters({1: right}, np.array([1.0, 2.0 + 2e-12])),
        lambda: claims.check_parameters({1: right, 2: off}, np.array([1.0, 2.0])),
        lambda: claims.check_bytes(right.edges, 2, 100),
        lambda: claims.check_dispatches({None: right, 4: right}, 4),
        lambda: claims.check_kills(result([1.0, 2.0], 8, 1).trained, right.trained, deadly, 4),
        lambda: claims.check_kills(result([1.0, 2.0], 9, 2).trained, right.trained, deadly, 4),
        lambda: claims.check_kills(off.trained, right.trained, [], 4),
        lambda: claims.check_int8((64, 10), parameters, shown),
    )
