from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared import passages
from examples._shared.data import Data
from examples._shared.passages import Passages, Regression
from examples.systems.angel import claims, oracle
from examples.systems.angel.algorithm import Weights, add
from examples.systems.angel.claims import Trial
from examples.systems.angel.program import ASP, BSP, make_program
from examples.systems.angel.shard import Report, Shard
from examples.systems.angel.worker import Trained

ALL = np.array([0, 1])


@pytest.fixture
def problem() -> Passages:
    rng = np.random.default_rng(0)
    rows = Data(rng.integers(40, size=(30, 6)), rng.integers(2, size=30))
    return Passages(rows, Regression(40), workers=4, steps=5, slice_size=2, learning_rate=1.0)


def test_the_gradient_by_the_keys_of_a_slice_is_the_slope_of_the_loss(problem: Passages) -> None:
    keys = problem.keys(3, 1)
    rng = np.random.default_rng(1)
    weights, direction = rng.normal(size=(2, 40))

    def loss(step: float) -> float:
        moved = weights.copy()
        moved[keys] += step * direction[keys]
        return problem.loss_and_gradient(moved, problem.slice(3, 1))[0]

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert problem.gradient(weights[keys], 3, 1) @ direction[keys] == pytest.approx(slope, rel=1e-6)


def test_a_sum_of_sparse_vectors_has_each_key_once() -> None:
    keys, values = add([(np.array([2, 5]), np.array([1.0, 2.0])), (np.array([1, 5]), np.ones(2))])

    assert (keys.tolist(), values.tolist()) == ([1, 2, 5], [1.0, 1.0, 3.0])


def test_a_passage_has_words_and_the_pairs_of_them_and_a_rest_is_left_out() -> None:
    words = ["one", "two", "three"] * 30

    (keys,) = passages.passages(" 1, ".join(words))

    assert len(keys) == 64 + 63
    assert len(set(keys)) == 3 + 3


def test_a_pull_that_waits_ends_with_the_attempt_of_its_shard(tmp_path: Path) -> None:
    with lp.testing.worker("shard", state=tmp_path) as me, ThreadPoolExecutor(1) as pool:
        shard = Shard(Weights(np.zeros(2)), workers=2, rate=1.0, staleness=1)
        waiting = pool.submit(shard.get, 0, 2, ALL)
        me.stop.request()

        with pytest.raises(lp.Stopped, match="shard-0 has ended: clock 2 is not waited for"):
            waiting.result(timeout=5)


@pytest.mark.usefixtures("in_a_worker")
def test_in_asp_no_pull_waits() -> None:
    shard = Shard(Weights(np.zeros(2)), workers=2, rate=1.0, staleness=ASP)

    for clock in range(9):
        shard.push(0, clock, ALL, np.ones(2))

    assert shard.get(0, 9, ALL).tolist() == [-9, -9]
    assert shard.report()[:2] == ([9], 0)


@pytest.mark.usefixtures("in_a_worker")
def test_a_shard_counts_what_others_pushed_since_a_pull_that_was_made_a_clock_ahead() -> None:
    shard = Shard(Weights(np.zeros(2)), workers=2, rate=1.0, staleness=ASP)

    shard.get(0, 0, ALL)
    shard.push(1, 0, ALL, np.ones(2))
    shard.get(0, 1, ALL)
    shard.push(0, 0, ALL, np.ones(2))
    assert shard.report().staleness == 1

    shard.push(1, 1, ALL, np.ones(2))
    shard.push(1, 2, ALL, np.ones(2))
    shard.push(0, 1, ALL, np.ones(2))
    assert shard.report().staleness == 2


@pytest.mark.usefixtures("in_a_worker")
def test_a_shard_goes_on_with_what_waited_when_it_was_killed() -> None:
    Shard(Weights(np.zeros(2)), workers=2, rate=1.0, staleness=BSP).push(1, 0, ALL, np.ones(2))

    second = Shard(Weights(np.zeros(2)), workers=2, rate=1.0, staleness=BSP)
    for worker in (1, 0):  # the former had been taken
        second.push(worker, 0, ALL, np.ones(2))

    assert second.get(0, 1, ALL).tolist() == [-2, -2]


def test_stragglers_by_turns_hold_up_workers_in_step_and_none_that_may_be_a_clock_ahead() -> None:
    traces = []
    for worker in range(2):
        trace = ["ask"]
        for clock in range(4):
            trace += ["pull", "ask", "slow" if clock % 2 == worker else "quick", "push"]
        traces.append(trace)

    assert oracle.makespan(traces, BSP) == 4 * (1 + 5)  # a pull, and the slower one
    assert oracle.makespan(traces, 1) == 1 + 5 + 1 + 5 + 1  # one pull; the others overlap
    assert oracle.makespan(traces, 1, overlaps=False) == 4 + 5 + 1 + 5 + 1


def test_groups_in_step_learn_what_one_process_learns(problem: Passages) -> None:
    program = make_program(problem, BSP, group_size=2, shards=3)

    trained = lp.run(program, "test_mt", timeout_s=60)["worker"][0]

    assert np.allclose(trained.weights, problem.train_alone(), rtol=0, atol=1e-15)


def test_groups_that_leave_workers_over_are_refused(problem: Passages) -> None:
    with pytest.raises(ValueError, match="4 workers cannot be in groups of 3"):
        make_program(problem, group_size=3)


def trial(
    staleness: float = BSP,
    gaps: Sequence[int] = (),
    n_waits: int = 0,
    attempt: int = 11,
    received: dict[str, int] | None = None,
    trace: Sequence[str] = (),
) -> Trial:
    """Return a training as its worker reports it, with the bytes of some methods."""
    weights = np.zeros(2)
    weights[0] = 1
    psfuncs = {"dot(w, w)": 1.0, "max(w)": 1.0, "nonzeros": 1}
    shards = [Report(list(gaps), n_waits, 0, attempt)]
    rows = [
        lp.edges.EdgeStats("worker-0", "shard-0", method, 1, 1, 0, 0, 0, 0, n_bytes, 0, 0, (), True)
        for method, n_bytes in (received or {}).items()
    ]
    workers = [Trained(list(trace), weights, psfuncs, shards)]
    return Trial("it", staleness, workers, lp.edges.Edges(rows))


def waits_for_nobody_else(staleness: float) -> Trial:
    """Return what a single worker reports: it waits for its own pushes, and in BSP its pulls do, too."""
    return trial(staleness, trace=["ask", "pull", "ask", "quick", "push", "pull", "quick", "push"])


def bytes_of_psfuncs(large: int, small: int) -> list[Trial]:
    """Return trainings at shards whose weights have 8000 and 2000 bytes."""
    costs = ({"weights": 8000, "compute": large}, {"weights": 2000, "compute": small})
    return [trial(received=cost) for cost in costs]


def bytes_of_pulls(n_bytes: int) -> Trial:
    return trial(received={"weights": 16, "get": n_bytes})


ROWS = Data(np.array([[0], [1]] * 5), np.array([1, 0] * 5))
TOLD_WORSE = replace(ROWS, targets=np.array([1, 0] * 4 + [0, 1]))
LEARNED = Passages(ROWS, Regression(2), workers=1, steps=3, slice_size=8)
N_PULLED = sum(len(LEARNED.keys(step, 0)) for step in range(3))
IN_STEP, STALE = waits_for_nobody_else(BSP), waits_for_nobody_else(1)


@pytest.mark.parametrize(
    ("claim", "holds", "does_not", "wrong"),
    [
        (
            claims.check_gaps,
            [trial(2, [2], 1)],
            [trial(2, [2, 3], 1)],
            "more than 2 clocks behind; at most 3",
        ),
        (
            claims.check_gaps,
            [trial(2, [1])],
            [trial(2, [0], 1)],
            "while the slowest worker is behind; 0 of 1 pulls",
        ),
        (claims.check_gaps, [trial(ASP, [9])], [trial(ASP, [9], 1)], "of which 1 waited"),
        (
            claims.check_serial,
            [np.array([1.0, 0.0]), [trial(), trial()], 10],
            [np.array([1 + 1e-11, 0.0]), [trial(), trial()], 10],
            "off by 1e-11",
        ),
        (
            claims.check_serial,
            [np.array([1.0, 0.0]), [trial(attempt=1), trial()], 10],
            [np.array([1.0, 0.0]), [trial(), trial(attempt=10)], 10],
            r"in attempts \[10\]",
        ),
        (
            claims.check_pulled,
            [bytes_of_pulls(8 * N_PULLED), LEARNED],
            [bytes_of_pulls(9 * N_PULLED), LEARNED],
            r"to 5 %; 9\.00 and 8\.00 bytes",
        ),
        (
            claims.check_psfuncs,
            bytes_of_psfuncs(100, 100),
            bytes_of_psfuncs(400, 100),
            "400 and 100 bytes instead of 8000 and 2000",
        ),
        (
            claims.check_time,
            [IN_STEP, STALE, STALE],
            [IN_STEP, IN_STEP, STALE],
            "it 4, it 4, it 3 units",
        ),
        (
            claims.check_accuracy,
            [trial(), LEARNED, ROWS],
            [trial(), LEARNED, TOLD_WORSE],
            r"classified correctly; 0\.800",
        ),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(claim, holds, does_not, wrong) -> None:
    claim(*holds)

    with pytest.raises(ArithmeticError, match=wrong):
        claim(*does_not)
