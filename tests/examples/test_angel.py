from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared.data import Array, Data
from examples._shared.logical_time import Event
from examples.systems.angel import claims, oracle, text
from examples.systems.angel.algorithm import Weights, add
from examples.systems.angel.claims import Trial
from examples.systems.angel.program import ASP, BSP, make_program
from examples.systems.angel.shard import Get, Report, Shard
from examples.systems.angel.text import Passages
from examples.systems.angel.worker import Trained

ALL = np.array([0, 1])


@pytest.fixture
def task() -> Passages:
    rng = np.random.default_rng(0)
    rows = Data(rng.integers(40, size=(30, 6)), rng.integers(2, size=30))
    return Passages(40, 1.0, 5, rows, worker=0, batch_size=8)


def test_the_gradient_is_the_slope_of_the_loss(task: Passages) -> None:
    batch, keys = task.batch(3), task.keys(3)
    rng = np.random.default_rng(1)
    weights, direction = rng.normal(size=(2, len(keys)))

    def loss(weights: Array) -> float:
        scores = weights[np.searchsorted(keys, batch.inputs)].sum(axis=1) / text.ROOT
        return float(np.log1p(np.exp(np.where(batch.targets == 1, -scores, scores))).mean())

    slope = (loss(weights + 1e-6 * direction) - loss(weights - 1e-6 * direction)) / 2e-6
    assert task.gradient(weights, 3) @ direction == pytest.approx(slope, rel=1e-6)


def test_a_sum_of_sparse_vectors_has_each_key_once() -> None:
    keys, values = add([(np.array([2, 5]), np.array([1.0, 2.0])), (np.array([1, 5]), np.ones(2))])

    assert (keys.tolist(), values.tolist()) == ([1, 2, 5], [1.0, 1.0, 3.0])


def test_weights_come_back_whole_and_are_saved_without_the_zeros() -> None:
    weights = Weights(np.zeros(1_000_000))
    weights.values[[3, 999_999]] = 0.1, -7
    weights.waiting[2] = np.array([5]), np.array([1.0])

    saved = pickle.dumps(weights)
    again = pickle.loads(saved)

    assert len(saved) < 1000
    assert again.values.tobytes() == weights.values.tobytes()
    assert again.waiting == weights.waiting


def test_a_passage_has_words_and_the_pairs_of_them_and_a_rest_is_left_out() -> None:
    words = ["one", "two", "three"] * 30

    (keys,) = text.passages(" 1, ".join(words))

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
    assert shard.report().gets == [Get(clock=9, slowest=0, has_waited=False)]


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
    def trace(worker: int) -> list[Event]:
        events = [Event("ask", 0)]
        for clock in range(4):
            events += [Event("pull", clock, 2 + worker), Event("ask", clock + 1)]
            kind = "slow" if clock % 2 == worker else "quick"
            events += [Event(kind, clock), Event("push", clock * 2 + worker)]
        return events

    trained = [Trained(trace(worker), 0, np.empty(0), {}, []) for worker in range(2)]

    def makespan(staleness: float, overlaps: bool = True) -> int:
        return Trial("", staleness, trained, lp.edges.Edges([])).makespan(overlaps)

    assert makespan(BSP) == 4 * (1 + 5)  # a pull, and the slower one
    assert makespan(1) == 1 + 5 + 1 + 5 + 1  # one pull; the others overlap
    assert makespan(1, overlaps=False) == 4 + 5 + 1 + 5 + 1


def test_groups_in_step_learn_what_one_process_learns(task: Passages) -> None:
    tasks = [replace(task, worker=worker) for worker in range(4)]
    program = make_program(tasks, BSP, group_size=2, shards=3)

    trained = lp.run(program, "test_mt", timeout_s=60)["worker"][0]

    assert np.allclose(trained.weights, oracle.train(tasks), rtol=0, atol=1e-15)


def test_groups_that_leave_workers_over_are_refused(task: Passages) -> None:
    with pytest.raises(ValueError, match="3 workers cannot be in groups of 2"):
        make_program([task] * 3, group_size=2)


def trial(
    staleness: float = BSP,
    *gets: Get,
    attempt: int = 11,
    n_weights: int = 2,
    received: dict[str, int] | None = None,
    trace: Sequence[Event] = (),
) -> Trial:
    """Return a training as its worker reports it, who pulled 100 weights; with the bytes of some methods."""
    weights = np.zeros(n_weights)
    weights[0] = 1
    psfuncs = {"dot(w, w)": 1.0, "max(w)": 1.0, "nonzeros": 1}
    shards = [Report(list(gets), 0, attempt)]
    rows = [
        lp.edges.EdgeStats("worker-0", "shard-0", method, 1, 1, 0, 0, 0, 0, n_bytes, 0, 0, (), True)
        for method, n_bytes in (received or {}).items()
    ]
    return Trial(
        "it", staleness, [Trained(list(trace), 100, weights, psfuncs, shards)], lp.edges.Edges(rows)
    )


def waits_for_nobody_else(staleness: float) -> Trial:
    """Return what a single worker reports: it waits for its own pushes, and in BSP its pulls do, too."""
    trace = [Event("ask", 0), Event("pull", 0, 1), Event("ask", 1), Event("quick", 0)]
    trace += [Event("push", 0), Event("pull", 1, 1), Event("quick", 1), Event("push", 1)]
    return trial(staleness, trace=trace)


def bytes_of_psfuncs(large: int, small: int) -> list[Trial]:
    """Return trainings at shards whose weights have 8000 and 2000 bytes."""
    costs = ({"weights": 8000, "compute": large}, {"weights": 2000, "compute": small})
    return [trial(received=cost) for cost in costs]


def bytes_of_pulls(n_bytes: int) -> list[Trial]:
    return [trial(n_weights=1000, received={"weights": 8000, "get": n_bytes})]


ROWS = Data(np.array([[0], [1]] * 5), np.array([1, 0] * 5))
TOLD_WORSE = replace(ROWS, targets=np.array([1, 0] * 4 + [0, 1]))
IN_STEP, STALE = waits_for_nobody_else(BSP), waits_for_nobody_else(1)


@pytest.mark.parametrize(
    ("claim", "holds", "does_not", "wrong"),
    [
        (
            claims.check_gaps,
            [trial(2, Get(5, 3, True))],
            [trial(2, Get(5, 3, True), Get(5, 2, False))],
            "more than 2 clocks behind; at most 3",
        ),
        (
            claims.check_gaps,
            [trial(2, Get(5, 4, False))],
            [trial(2, Get(5, 5, True))],
            "while the slowest worker is behind; 0 of 1 pulls",
        ),
        (
            claims.check_gaps,
            [trial(ASP, Get(9, 0, False))],
            [trial(ASP, Get(9, 0, True))],
            "of which 1 waited",
        ),
        (
            claims.check_serial,
            [[trial()], np.array([1.0, 0.0])],
            [[trial()], np.array([1 + 1e-11, 0.0])],
            "it off by 1e-11",
        ),
        (claims.check_killed, [trial(), 10], [trial(attempt=10), 10], r"in attempts \[10\]"),
        (
            claims.check_pulled,
            [bytes_of_pulls(840)],
            [bytes_of_pulls(8000)],
            r"to 5 %; 8\.00 to 80\.00 bytes",
        ),
        (
            claims.check_psfuncs,
            [bytes_of_psfuncs(100, 100)],
            [bytes_of_psfuncs(400, 100)],
            "400 instead of 8000 bytes and 100 instead of 2000 bytes",
        ),
        (
            claims.check_time,
            [IN_STEP, STALE, STALE],
            [IN_STEP, IN_STEP, STALE],
            "it 4, it 4, it 3 units",
        ),
        (
            claims.check_accuracy,
            [trial(), ROWS],
            [trial(), TOLD_WORSE],
            r"0\.800, loss 0\.\d+; the same answer to all 0\.500",
        ),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(claim, holds, does_not, wrong) -> None:
    claim(*holds)

    with pytest.raises(ArithmeticError, match=wrong):
        claim(*does_not)
