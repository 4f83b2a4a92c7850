from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared import digits, networks
from examples._shared.problem import Problem
from examples._shared.shard import ShardState
from examples.ps.claims import (
    check_accuracy,
    check_applied,
    check_equals_large_batch,
    check_staleness,
    check_sum,
)
from examples.ps.program import SHARDS, Trained, make_program
from examples.ps.shards import AsyncShard, Shard, SspShard, SyncShard


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(workers=3)


@pytest.fixture
def in_a_worker(tmp_path: Path) -> Iterator[None]:
    with lp.testing.worker("shard", state=tmp_path):
        yield


def test_gradients_of_all_workers_are_that_of_the_batch(problem: Problem) -> None:
    parameters = networks.first_parameters(problem.widths)

    parts = [problem.gradient(parameters, 7, worker) for worker in range(3)]

    whole = networks.gradient(problem.widths, parameters, problem.batch(7))
    assert np.allclose(np.mean(parts, axis=0), whole, rtol=0, atol=1e-15)


@pytest.mark.usefixtures("in_a_worker")
def test_async_shard_applies_a_gradient_at_once() -> None:
    shard = AsyncShard(np.zeros(2), workers=2, learning_rate=0.5)

    parameters = shard.push(0, 0, np.array([4.0, 8.0]))

    assert np.array_equal(parameters, [-1.0, -2.0])
    assert np.array_equal(shard.parameters(), parameters)
    assert shard.applied() == [1, 0]


@pytest.mark.usefixtures("in_a_worker")
@pytest.mark.parametrize("kind", [AsyncShard, SyncShard])
def test_a_shard_applies_a_gradient_once_that_is_pushed_twice(kind: type[Shard]) -> None:
    shard = kind(np.zeros(1), workers=1, learning_rate=1.0)

    answers = [shard.push(0, step, np.array([1.0])) for step in (0, 0, 1, 1, 1)]

    assert np.array_equal(np.concatenate(answers), [-1, -1, -2, -2, -2])
    assert shard.applied() == [2]


@pytest.mark.usefixtures("in_a_worker")
@pytest.mark.parametrize("kind", [AsyncShard, SyncShard])
def test_a_shard_goes_on_where_the_one_that_was_killed_had_answered(kind: type[Shard]) -> None:
    first = kind(np.zeros(1), workers=1, learning_rate=1.0)
    first.push(0, 0, np.array([3.0]))

    second = kind(np.zeros(1), workers=1, learning_rate=1.0)

    assert np.array_equal(second.push(0, 0, np.array([3.0])), [-3.0])  # it had been applied
    assert np.array_equal(second.push(0, 1, np.array([1.0])), [-4.0])
    assert second.applied() == [2]


@pytest.mark.usefixtures("in_a_worker")
def test_sync_shard_answers_when_all_gradients_are_in() -> None:
    shard = SyncShard(np.zeros(1), workers=2, learning_rate=1.0)

    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(shard.push, 0, 0, np.array([1.0]))
        late = shard.push(1, 0, np.array([3.0]))

        assert early.result(timeout=5) == late == [-2.0]


@pytest.mark.usefixtures("in_a_worker")
def test_ssp_shard_answers_once_the_slowest_is_near_enough() -> None:
    shard = SspShard(np.zeros(1), workers=2, learning_rate=2.0)

    with ThreadPoolExecutor(1) as pool:
        ahead = [shard.push(0, step, np.array([1.0])) for step in range(2)]
        too_far = pool.submit(shard.push, 0, 2, np.array([1.0]))
        with shard._state.changed:  # until it waits
            assert shard._state.changed.wait_for(lambda: shard._state.applied[0] == 3, timeout=5)
        late = shard.push(1, 0, np.array([1.0]))

        assert [*ahead, late, too_far.result(timeout=5)] == [[-1], [-2], [-4], [-4]]
        assert shard.applied() == [3, 1]


@pytest.mark.usefixtures("in_a_worker")
def test_a_shard_counts_the_gradients_that_came_between_what_a_worker_got_and_its_own() -> None:
    shard = AsyncShard(np.zeros(1), workers=2, learning_rate=1.0)

    for worker, step in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2)):
        shard.push(worker, step, np.array([1.0]))

    assert shard.staleness() == 2


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


def test_check_refuses_parameters_that_learned_nothing(problem: Problem) -> None:
    _, held_out = digits.load()

    with pytest.raises(ArithmeticError, match=r"0\.95 are read at least; 0\.\d+"):
        check_accuracy(problem.first_parameters, problem, held_out)


def test_check_refuses_a_gradient_that_was_applied_twice_or_never(problem: Problem) -> None:
    check_applied([[400, 400], [400, 400]], problem)

    with pytest.raises(ArithmeticError, match="400 gradients of every worker, each once"):
        check_applied([[400, 400], [399, 401]], problem)


def test_check_refuses_parameters_that_have_one_gradient_twice(problem: Problem) -> None:
    pushed, step = np.ones(650), problem.learning_rate / problem.workers
    worker = Trained(pushed, -3 * step * pushed, [], [], [])
    check_sum([worker] * 3, problem)

    with pytest.raises(ArithmeticError, match="what all workers say that they have pushed"):
        check_sum([replace(worker, parameters=-4 * step * pushed)] * 3, problem)


def test_check_refuses_parameters_that_differ_a_little(problem: Problem) -> None:
    nearly = problem.train_alone() + 2e-6

    with pytest.raises(ArithmeticError, match=r"to 1e-06; largest difference 2\.0e-06"):
        check_equals_large_batch(nearly, problem)


def test_check_refuses_a_worker_that_was_further_ahead_than_it_may(problem: Problem) -> None:
    check_staleness([10, 3], problem)

    with pytest.raises(ArithmeticError, match="at most 10 gradients come between"):
        check_staleness([10, 11], problem)


def test_make_program_refuses_an_unknown_mode(problem: Problem) -> None:
    with pytest.raises(KeyError):
        make_program(problem, mode="sideways")


def test_make_program_refuses_to_kill_a_shard_after_the_end(problem: Problem) -> None:
    with pytest.raises(ValueError, match="no shard can be killed at step 400 of 400"):
        make_program(problem, kill_at=400)


def test_make_program_refuses_to_record_calls_that_wait_for_each_other(problem, tmp_path) -> None:
    with pytest.raises(ValueError, match="no order can be kept to in mode 'ssp'"):
        make_program(problem, "ssp", order=lp.edges.Record(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch_type", "mode"),
    [
        *product(["local_mt", "ray", "kubernetes"], ["sync", "ssp"]),
        ("spark", "ssp"),
        *product(["local_mp"], SHARDS),
    ],
    indirect=["launch_type"],
)
def test_ps_goes_on_when_a_shard_is_killed_and_counts_every_gradient_once(
    run_example, launch_type, mode
) -> None:
    workers, shards = (3, 3) if mode == "sync" else (4, 2)
    graph = f"--workers={workers}", f"--shards={shards}"
    done = run_example("ps", launch_type, f"--mode={mode}", *graph, "--kill_shard_at=150")

    assert done.returncode == 0, done.stderr
    assert "ok    all this holds although the first shard was killed: " in done.stdout
    assert re.search(r"shard-0 +\| resumes after \d+ updates", done.stdout)
    assert "ok    the parameters are the sum of what all workers say" in done.stdout
    assert f"each once: {' + '.join([str(400 * workers)] * shards)}\n" in done.stdout
    assert (mode == "sync") == ("what one process learns from large batches" in done.stdout)
    assert (mode == "ssp") == ("at most 15 gradients come between" in done.stdout)
    assert "the answer is right" in done.stdout


@pytest.mark.slow
def test_ps_in_async_reads_the_digits_and_replayed_in_the_same_order_gives_the_same_bits(
    run_example, local_type, tmp_path: Path
) -> None:
    digests = []
    for flag in (f"--record={tmp_path}/order", f"--replay={tmp_path}/order"):
        done = run_example("ps", local_type, "--mode=async", flag)
        assert done.returncode == 0, done.stderr
        assert "the answer is right" in done.stdout
        digests.append(re.search(r"sha256 of the parameters: (\w{64})", done.stdout)[1])

    assert digests[0] == digests[1]


@pytest.mark.slow
def test_ps_reports_a_worker_that_raises_while_the_others_wait_for_it(
    assert_failure_is_reported, launch_type
) -> None:
    # The others are blocked inside the shards, and the program must end all the same.
    assert_failure_is_reported(
        "ps",
        launch_type,
        broken="Worker._push",
        when="self._index == 1",
        worker="worker",
        arguments="example.Problem()",
    )
