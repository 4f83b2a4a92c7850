from __future__ import annotations

import threading

import numpy as np
import pytest

import launchpad as lp
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.elephas import claims, driver
from examples.systems.elephas.algorithm import Weights, partitions_of
from examples.systems.elephas.driver import Fitted
from examples.systems.elephas.oracle import average_alone
from examples.systems.elephas.program import Result, fit
from examples.systems.elephas.worker import Worked
from tests.examples.conftest import assert_refused, noise
from tests.waiting import until


@pytest.mark.slow
def test_averages_after_each_batch_are_those_of_one_process(monkeypatch) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mt")
    problem = Problem(noise(41), workers=2, steps=7, slice_size=7)

    result = fit(problem, "synchronous")

    alone = average_alone(problem, partitions_of(problem), every=1)
    assert np.abs(result.parameters - alone).max() < 1e-12


def test_every_row_of_a_partition_is_in_one_batch_of_an_epoch() -> None:
    problem = Problem(noise(20), workers=1, slice_size=6)
    (rows,) = partitions_of(problem)
    parameters = problem.network.first_parameters()

    gradients = [rows(parameters, step) for step in range(4, 8)]

    # The batches are alike in size, so that their mean is the gradient on all of it.
    _, whole = problem.loss_and_gradient(parameters, problem.training)
    assert np.allclose(np.mean(gradients, axis=0), whole, rtol=0, atol=1e-15)


def test_an_epoch_has_as_many_batches_in_every_partition() -> None:
    problem = Problem(noise(13), workers=2, slice_size=4)

    partitions = partitions_of(problem, [noise(10), noise(3)])

    assert [rows.n_batches for rows in partitions] == [3, 3]
    with pytest.raises(ValueError, match="partition 1 has 2 rows: too few for the 3 batches"):
        partitions_of(problem, [noise(10), noise(2)])


@pytest.mark.usefixtures("in_a_worker")
def test_in_hogwild_an_update_that_comes_while_a_slow_one_waits_is_lost_and_known(
    monkeypatch,
) -> None:
    made = driver.MODES["hogwild"](np.zeros(2), 2, 2, dies=False)
    made.push(1, 0, np.full(2, 4.0))  # nobody else comes
    monkeypatch.setattr(driver, "SLOW_S", 10)
    slow = threading.Thread(target=made.push, args=(0, 0, np.ones(2)))

    slow.start()
    until(lambda: made.clock(0) == 1)
    made.push(1, 1, np.full(2, 2.0))
    slow.join()

    assert made.pull(0).tolist() == [5, 5]
    assert made.fitted().weights.counts.tolist() == [[1, 0], [1, 0]]


def test_checks_refuse_what_is_nearly_right() -> None:
    problem = Problem(noise(20), Dense((1, 1)), workers=2)  # two parameters, which begin with 0
    deltas = np.array([[1.0, 2.0], [3.0, 4.0]])

    def result(parameters: list[float], counts: list[list[int]], attempt: int = 2) -> Result:
        fitted = Fitted(Weights(np.array(parameters), np.array(counts)), 0, attempt)
        workers = [Worked(deltas, worker + 1, fitted) for worker in range(2)]
        return Result(workers, lp.edges.Edges(()))

    all_in, one_lost = [[1, 1], [1, 1]], [[1, 0], [1, 1]]
    right = result([8, 12], all_in)
    claims.check_counts("asynchronous", right, problem)
    claims.check_counts("hogwild", result([5, 8], one_lost), problem)
    claims.check_averages(right, right, right.parameters, "epoch")

    assert_refused(
        lambda: claims.check_averages(right, right, right.parameters + 2e-12, "epoch"),
        lambda: claims.check_averages(right, result([8, 12], all_in, 1), right.parameters, "epoch"),
        lambda: claims.check_averages(
            right, result([8, 12 + 1e-14], all_in), right.parameters, "epoch"
        ),
        lambda: claims.check_counts("asynchronous", result([5, 8], one_lost), problem),
        lambda: claims.check_counts("asynchronous", result([5, 8], all_in), problem),
        lambda: claims.check_counts("asynchronous", result([9, 14], [[2, 1], [1, 1]]), problem),
        lambda: claims.check_counts("asynchronous", result([8, 12], all_in, attempt=1), problem),
        lambda: claims.check_counts("hogwild", right, problem),
        lambda: claims.check_counts("hogwild", result([8, 12], one_lost), problem),
        lambda: claims.check_counts("hogwild", result([5, 8], one_lost, attempt=1), problem),
        lambda: claims.check_counts("hogwild", result([6, 10], [[2, 0], [1, 1]]), problem),
    )
