from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared import digits
from examples._shared.problem import Problem
from examples._shared.shard import ShardState
from examples.ps import claims
from examples.ps.program import make_program
from examples.ps.shards import AsyncShard, Report, Shard, SspShard, SyncShard
from examples.ps.worker import Trained
from tests.examples.conftest import assert_refused


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(workers=3)


@pytest.mark.usefixtures("in_a_worker")
@pytest.mark.parametrize("kind", [AsyncShard, SyncShard])
def test_a_shard_applies_a_gradient_once_that_is_pushed_again_also_to_its_next_attempt(
    kind: type[Shard],
) -> None:
    first = kind(np.zeros(1), workers=1, learning_rate=1.0)
    answers = [first.push(0, step, np.array([1.0])) for step in (0, 0, 1)]

    second = kind(np.zeros(1), workers=1, learning_rate=1.0)
    answers += [second.push(0, step, np.array([1.0])) for step in (1, 2)]

    assert np.concatenate(answers).tolist() == [-1, -1, -2, -2, -3]
    assert second.report().applied == [3]


@pytest.mark.usefixtures("in_a_worker")
def test_a_shard_counts_the_gradients_that_came_between_what_a_worker_got_and_its_own() -> None:
    shard = AsyncShard(np.zeros(1), workers=2, learning_rate=1.0)

    for worker, step in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2)):
        shard.push(worker, step, np.array([1.0]))

    assert shard.report().staleness == 2


@pytest.mark.usefixtures("in_a_worker")
def test_a_worker_straggles_until_each_other_one_waits_for_it() -> None:
    shard = SspShard(np.zeros(1), workers=3, learning_rate=1.0)

    with ThreadPoolExecutor(3) as pool:
        straggling = pool.submit(shard.straggle, 0, lead=9)
        for step in range(2):
            shard.push(1, step, np.array([1.0]))
            shard.push(2, step, np.array([1.0]))
        assert not straggling.done()
        waiting = [pool.submit(shard.push, i, 2, np.array([1.0])) for i in (1, 2)]
        straggling.result(timeout=30)
        shard.push(0, 0, np.array([1.0]))
        for push in waiting:
            push.result(timeout=30)

    assert shard.report().n_waits == 2


@pytest.mark.usefixtures("in_a_worker")
def test_what_a_group_makes_is_as_stale_as_what_the_first_of_it_has_seen() -> None:
    state = ShardState(0, workers=2)

    with state.changed:
        state.mark_seen(0, 0)
    with state.update(1, 0):
        pass
    with state.changed:
        state.mark_seen(0, 0)  # another of the group, later
    with state.update(0, 0):
        pass

    assert state.staleness == 1


@pytest.mark.usefixtures("in_a_worker")
def test_a_shard_refuses_a_gradient_before_which_one_is_missing() -> None:
    shard = AsyncShard(np.zeros(1), workers=1, learning_rate=1.0)

    with pytest.raises(ValueError, match="has 0 updates of worker 0: number 1 cannot be the next"):
        shard.push(0, 1, np.array([1.0]))


def test_sync_shard_gives_the_same_bits_in_whatever_order_gradients_come(tmp_path: Path) -> None:
    gradients = np.random.default_rng(0).normal(size=(3, 50))
    results = []

    for order in ([0, 1, 2], [2, 0, 1]):
        with lp.testing.worker(state=tmp_path / str(order[0])), ThreadPoolExecutor(3) as pool:
            shard = SyncShard(np.zeros(50), workers=3, learning_rate=0.1)
            list(pool.map(shard.push, order, [0, 0, 0], gradients[order]))
        results.append(shard.parameters())

    assert np.array_equal(results[0], results[1])


@pytest.mark.usefixtures("in_a_worker")
def test_shard_does_not_give_its_own_array_away() -> None:
    shard = AsyncShard(np.zeros(2), workers=1, learning_rate=1.0)

    shard.parameters()[:] = 7

    assert np.array_equal(shard.parameters(), [0.0, 0.0])


def test_checks_refuse_what_is_nearly_right(problem: Problem) -> None:
    _, held_out = digits.load()
    step = problem.learning_rate / problem.workers
    alone, pushed = problem.train_alone(), np.ones(650)

    def workers(parameters: float) -> list[Trained]:
        """Three who have each pushed ones, all of which make these parameters."""
        return [Trained(pushed, -parameters * step * pushed, [], [])] * 3

    def shards(*applied: int, **fields: int) -> list[Report]:
        """Two, the second of which has applied so many gradients of its workers."""
        report = Report([400, 400], staleness=0, n_waits=0, attempt=1)
        return [report._replace(**fields), report._replace(applied=[*applied])]

    claims.check_applied(shards(400, 400), problem)
    claims.check_sum(workers(3), problem)
    claims.check_equals_large_batch(alone, problem)
    claims.check_staleness(10, problem)
    claims.check_waits(shards())
    claims.check_killed(replace(workers(3)[0], shards=shards(attempt=2)))

    assert_refused(
        lambda: claims.check_accuracy(problem.first_parameters, problem, held_out),
        lambda: claims.check_applied(shards(399, 401), problem),
        lambda: claims.check_sum(workers(4), problem),
        lambda: claims.check_equals_large_batch(alone + 2e-6, problem),
        lambda: claims.check_staleness(11, problem),
        lambda: claims.check_waits(shards(n_waits=1)),
        lambda: claims.check_killed(replace(workers(3)[0], shards=shards())),
    )


@pytest.mark.parametrize(
    ("mode", "options", "error", "why"),
    [
        ("sideways", {}, KeyError, "sideways"),
        ("sync", {"kill_at": 400}, ValueError, "no shard can be killed at step 400 of 400"),
        ("ssp", {"order": lp.edges.Record("order")}, ValueError, "no order can be kept to"),
    ],
)
def test_a_program_that_cannot_be_is_refused(problem, mode, options, error, why) -> None:
    with pytest.raises(error, match=why):
        make_program(problem, mode, **options)
