from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import launchpad as lp
from examples._shared import checks
from examples._shared.logical_time import Event
from examples._shared.networks import Dense
from examples._shared.optimizers import Momentum
from examples._shared.problem import Problem
from examples.systems.horovod import claims
from examples.systems.horovod.algorithm import Buckets, DistributedOptimizer
from examples.systems.horovod.rank import Options, Trained
from tests.examples.conftest import noise

SENT = [Event("send", 0), Event("send", 0, received_from=0)]
DONE = [Event("all-reduce", 0), Event("all-reduce", 0, received_from=1)]
LAYERS = [Event("backward", 0), Event("backward", 1)]
COMMUNICATION = [SENT[1], DONE[0]]
OVERLAPPED = ([LAYERS[0], SENT[0], LAYERS[1], DONE[1]], COMMUNICATION)
WAITED_FOR = ([LAYERS[0], SENT[0], DONE[1], LAYERS[1]], COMMUNICATION)
TRAINED = Trained(np.ones(2), [], OVERLAPPED, generation=1)
OTHER = replace(TRAINED, parameters=np.zeros(2), generation=2)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(noise(100), Dense((64, 9, 8, 7, 10)), workers=3, steps=1, slice_size=8)


@pytest.fixture
def run_backward(problem: Problem) -> Callable[..., DistributedOptimizer]:
    """Runs backward on one batch, alone or with what stands for the mean over all ranks."""

    def run(mean=lambda x: x, **options) -> DistributedOptimizer:
        parameters = problem.first_parameters
        momentum = Momentum(parameters, np.zeros_like(parameters), 0.1, 0.9)
        optimizer = DistributedOptimizer(momentum, Buckets(mean, **options))
        optimizer.backward(problem, problem.batch(0))
        return optimizer

    return run


def test_an_error_in_the_thread_of_communication_is_raised_by_the_step(run_backward) -> None:
    def mean(x):
        raise lp.PeerFailed("rank 1 has failed")

    with pytest.raises(lp.PeerFailed, match="rank 1"):
        run_backward(mean).step()


def test_compressed_gradients_travel_as_float16(run_backward) -> None:
    seen = []
    run_backward(lambda x: seen.append((x.dtype, x.size)) or x, wire="float16").step()

    assert seen == [(np.float16, 808)]  # all layers, in one bucket


@pytest.mark.parametrize(
    ("claim", "arguments", "wrong"),
    [
        (checks.check_same_bits, ["it", [np.ones(2), np.zeros(2)]], "sha256 .{12}, .{12}$"),
        (claims.check_near, [np.ones(2), np.array([1, 1 + 2e-12]), 1e-12, "it"], "2.0e-12"),
        (claims.check_fusion, [(LAYERS, [])], "2 tensors in 0 all-reduces"),
        (claims.check_fusion, [([LAYERS[0], SENT[0]], COMMUNICATION)], "1 tensors in 1 all"),
        (claims.check_fusion, [WAITED_FOR], "0% of their logical time"),
        (claims.check_kill, [[TRAINED], [TRAINED]], "in generation 1"),
        (claims.check_kill, [[OTHER], [TRAINED]], "0 of 1"),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(claim, arguments, wrong) -> None:
    with pytest.raises(ArithmeticError, match=wrong):
        claim(*arguments)


def test_all_reduces_overlap_if_backward_does_not_wait_for_them() -> None:
    assert claims.overlapped(OVERLAPPED) == 1


def test_bytes_that_go_over_a_star_where_rank_0_adds_up_for_all_are_refused(problem) -> None:
    size = problem.first_parameters.nbytes
    row = lp.edges.EdgeStats(
        "rank-1", "rank-0", "put", 1, 1, 0, 0, 0, size, size, 0, 0, (), is_exact=True
    )
    star = lp.edges.Edges((row, replace(row, caller="rank-2")))

    with pytest.raises(ArithmeticError, match=r"1\.3333.*; 2\.0000"):
        claims.check_bytes(star, problem, Options())
