from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import launchpad as lp
from examples.systems.horovod import claims
from examples.systems.horovod.algorithm import DistributedOptimizer, Momentum, backward
from examples.systems.horovod.program import Trained, Training
from tests.examples.conftest import noise

WIDTHS = (64, 9, 8, 7, 10)
TRAINED = Trained(np.ones(2), "a1", [1, 2], generation=1)


@pytest.fixture(scope="module")
def training() -> Training:
    return Training(noise(100), WIDTHS, steps=1)


@pytest.fixture
def run_backward(training: Training) -> Iterator[Callable[..., DistributedOptimizer]]:
    """Runs backward on one batch, alone or with what stands for the mean over all ranks."""

    def run(mean=lambda x: x, **options) -> DistributedOptimizer:
        parameters = training.first_parameters
        momentum = Momentum(parameters.copy(), np.zeros_like(parameters), 0.1, 0.9)
        options = {"fusion_bytes": 1000, **options}
        optimizer = DistributedOptimizer(momentum, mean, communication, **options)
        backward(WIDTHS, parameters, training.batch(0), optimizer)
        return optimizer

    with ThreadPoolExecutor(1) as communication:
        yield run


def test_an_error_in_the_thread_of_communication_is_raised_by_the_step(run_backward) -> None:
    def mean(x):
        raise lp.PeerFailed("rank 1 has failed")

    with pytest.raises(lp.PeerFailed, match="rank 1"):
        run_backward(mean).step()


def test_compressed_gradients_travel_as_float16(run_backward) -> None:
    seen = []
    optimizer = run_backward(lambda x: seen.append(x.dtype) or x, wire="float16")
    optimizer.step()

    assert seen == [np.float16]  # 1,400 bytes, in one bucket
    assert optimizer.gradient.dtype == np.float64


@pytest.mark.parametrize(
    ("claim", "arguments", "wrong"),
    [
        (claims.check_equal_bits, [[TRAINED, replace(TRAINED, sha256="b2")]], "a1, b2"),
        (claims.check_near, [np.ones(2), np.array([1, 1 + 2e-12]), 1e-12, "it"], "2.0e-12"),
        (claims.check_fusion, [replace(TRAINED, left_at=[*range(1, 9)])], "8 all-reduces"),
        (claims.check_fusion, [replace(TRAINED, left_at=[8])], "8 of 8 gradients"),
        (claims.check_kill, [[TRAINED], [TRAINED]], "in generation 1"),
        (
            claims.check_kill,
            [[replace(TRAINED, sha256="b2", generation=2)], [TRAINED]],
            "0 of 1",
        ),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(claim, arguments, wrong, training) -> None:
    needs_training = claim is claims.check_fusion

    with pytest.raises(ArithmeticError, match=wrong):
        claim(*arguments, *([training] if needs_training else []))


def test_bytes_that_go_over_a_star_where_rank_0_adds_up_for_all_are_refused(training) -> None:
    size = training.first_parameters.nbytes
    row = lp.edges.EdgeStats(
        "rank-1", "rank-0", "put", 1, 1, 0, 0, 0, size, size, 0, 0, (), is_exact=True
    )
    star = lp.edges.Edges((row, replace(row, caller="rank-2")))

    with pytest.raises(ArithmeticError, match=r"1\.3333.*; 2\.0000"):
        claims.check_bytes(star, 3, training)
