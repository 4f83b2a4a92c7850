from __future__ import annotations

import threading

import numpy as np
import pytest

from examples._shared import networks
from examples.systems.elephas import claims
from examples.systems.elephas.algorithm import Model, Weights, in_batches, rounds
from examples.systems.elephas.driver import MODES, Fitted
from examples.systems.elephas.oracle import average_alone
from examples.systems.elephas.program import Result, fit
from examples.systems.elephas.worker import Worked
from tests.examples.conftest import assert_refused, noise
from tests.waiting import until

MODEL = Model((1,), np.zeros(2), 0.5)


@pytest.mark.slow
def test_averages_after_each_batch_are_those_of_one_process(monkeypatch) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mt")
    model = Model((64, 10), networks.first_parameters((64, 10)), 0.5)
    data = in_batches([noise(20), noise(21)], 7)

    result = fit([model], data, steps=7, frequency="batch", mode="synchronous")

    alone = average_alone(model, data, rounds("batch", 7, data[0].n_batches))
    claims.check_averages(result, [alone], "batch")


def test_every_digit_of_a_partition_is_in_one_batch_of_an_epoch() -> None:
    (rows,) = in_batches([noise(20)], 6)
    model = Model((64, 10), networks.first_parameters((64, 10)), 1.0, seed=3)

    gradients = [rows.gradient(model, model.parameters, step) for step in range(4, 8)]

    # The batches are alike in size, so that their mean is the gradient on all of it.
    whole = networks.gradient(model.widths, model.parameters, rows.digits)
    assert np.allclose(np.mean(gradients, axis=0), whole, rtol=0, atol=1e-15)


def test_an_epoch_has_as_many_batches_in_every_partition() -> None:
    data = in_batches([noise(10), noise(3)], 4)

    assert [rows.n_batches for rows in data] == [3, 3]
    with pytest.raises(ValueError, match="partition 1 has 2 rows: too few for the 3 batches"):
        in_batches([noise(10), noise(2)], 4)


def test_workers_exchange_with_the_driver_after_an_epoch_or_after_a_batch() -> None:
    assert rounds("epoch", 7, 3) == [range(3), range(3, 6), range(6, 7)]
    assert rounds("batch", 3, 3) == [range(1), range(1, 2), range(2, 3)]
    with pytest.raises(KeyError, match="month"):
        rounds("month", 3, 3)


@pytest.mark.usefixtures("in_a_worker")
def test_without_a_lock_what_is_written_between_read_and_write_of_another_is_lost_and_known(
    monkeypatch,
) -> None:
    driver = MODES["hogwild"](Model((1,), np.zeros(2), 0.5), 2, 3)
    third = threading.Thread(target=driver.push, args=(1, 1, 4 * np.ones(2)))

    class Interrupted(threading.Event):
        """Has two more updates come while the first one waits; the second of them waits for it."""

        def wait(self, timeout: float | None = None) -> bool:
            driver.push(1, 0, 2 * np.ones(2))
            third.start()
            until(lambda: driver.clock(1) == 2)
            return True

    monkeypatch.setattr(driver, "_is_overtaken", Interrupted())
    driver.push(0, 0, np.ones(2))
    third.join()

    assert driver.pull(0).tolist() == [5, 5]
    assert driver.fitted().pushed == [1, 2]
    assert driver.fitted().weights.counts.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_checks_refuse_what_is_nearly_right() -> None:
    deltas = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    workers = [Worked(deltas, 3, attempt, []) for attempt in (1, 2)]

    def result(parameters: list[float], counts: list[list[int]], **changes: object) -> Result:
        weights = Weights(np.array(parameters), np.array(counts))
        fitted = Fitted(weights, [2, 2], 0, 2)._replace(**changes)
        return Result([workers[0]._replace(fitted=[fitted]), workers[1]], None)

    all_in, one_lost = [[1, 1], [1, 1]], [[1, 0], [1, 1]]
    right = result([8, 12], all_in)
    claims.check_none_lost(right, [MODEL])
    claims.check_refused(right, 6)
    claims.check_lost_are_counted(result([5, 8], one_lost), [MODEL])

    assert_refused(
        lambda: claims.check_averages(right, [np.array([8, 12 + 2e-12])], "epoch"),
        lambda: claims.check_same_bits(result([8, 12], all_in, attempt=1)),
        lambda: claims.check_none_lost(result([5, 8], one_lost), [MODEL]),
        lambda: claims.check_none_lost(result([5, 8], all_in), [MODEL]),
        lambda: claims.check_none_lost(result([9, 14], [[2, 1], [1, 1]]), [MODEL]),
        lambda: claims.check_none_lost(result([8, 12], all_in, attempt=1), [MODEL]),
        lambda: claims.check_refused(right, 7),
        lambda: claims.check_lost_are_counted(result([8, 12], one_lost), [MODEL]),
        lambda: claims.check_lost_are_counted(result([5, 8], one_lost, attempt=1), [MODEL]),
        lambda: claims.check_lost_are_counted(result([6, 10], [[2, 0], [1, 1]]), [MODEL]),
        lambda: claims.check_lost_are_counted(result([5, 8], one_lost, pushed=[2, 3]), [MODEL]),
    )
