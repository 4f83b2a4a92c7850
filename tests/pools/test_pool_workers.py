"""Pools whose workers are slow, and pools whose workers end or are killed."""

from __future__ import annotations

import gc
import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.pools import pool_thread
from launchpad.pools import worker as pool_worker
from launchpad.pools.function import Definition
from launchpad.pools.schedule import MemberState
from launchpad.pools.worker import NOT_BEGUN, PoolWorker
from tests.helpers import pool_nodes
from tests.helpers.local_pools import (
    DEADLINE_S,
    LocalWorkers,
    gates,
    open_gate,
    open_gates,
    pass_gate,
)
from tests.waiting import until

AT_ONCE = lp.RestartPolicy(max_restarts=20, backoff=0)


@lp.idempotent
def pass_gate_again(name: str) -> str:
    return pass_gate(name)


def test_work_is_taken_back_from_a_worker_that_is_busy(
    pool: lp.Pool, workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []
    take_outcome = pool._thread._take_outcome

    def noted(frame: Any, call: Any) -> None:
        answers.append(call.result()[0])
        take_outcome(frame, call)

    first, second = workers.served
    waits = pool.submit(pass_gate_again, "a")
    until(lambda: first._running or second._running)
    names = "ab" if first._running else "ba"
    quick = pool.submit(pass_gate_again, "b")
    until(lambda: first._running and second._running)
    ahead = pool.submit(lp.idempotent(partial(open_gate)), "c")  # is sent ahead to one of the two
    until(lambda: first._waiting or second._waiting)
    monkeypatch.setattr(pool._thread, "_take_outcome", noted)

    gates[names[1] if first._waiting else names[0]].set()
    assert ahead.result(DEADLINE_S) == "c"
    open_gates()

    assert [future.result(DEADLINE_S) for future in (waits, quick)] == ["a", "b"]
    assert NOT_BEGUN in answers


def test_what_a_lost_worker_may_have_run_is_reported(pool: lp.Pool, workers: LocalWorkers) -> None:
    once = pool.submit(pass_gate, "a")
    busy = workers.busy()
    twice = pool.submit(partial(pass_gate_again, "b"))
    behind = [pool.submit(pool_nodes.double, n) for n in range(3)]
    until(lambda: workers.served[0]._running and workers.served[1]._running)

    workers.stop(busy)
    with pytest.raises(courier.OutcomeUnknown, match=f"worker-{busy}") as lost:
        once.result(DEADLINE_S)
    gates["b"].set()
    results = [future.result(DEADLINE_S) for future in behind]

    assert "'pass_gate'" in str(lost.value)
    assert "lp.idempotent" in str(lost.value)
    assert results == [0, 2, 4]
    assert twice.result(DEADLINE_S) == "b"


def test_what_has_surely_not_begun_goes_to_another_worker(workers: LocalWorkers) -> None:
    with lp.pool(workers.clients[:1]) as other, lp.pool(workers.clients) as pool:
        blocks = other.submit(pass_gate, "a")
        until(lambda: workers.served[0]._running)
        jobs = [pool.submit(pass_gate, "b") for _ in range(2)]
        until(lambda: workers.served[0]._waiting and workers.served[1]._running)

        workers.stop(0, grace_s=DEADLINE_S)
        gates["b"].set()

        assert [job.result(DEADLINE_S) for job in jobs] == ["b", "b"]
        with pytest.raises(courier.OutcomeUnknown, match="worker-0 was stopped"):
            blocks.result(DEADLINE_S)


def test_when_no_worker_is_left_all_futures_fail(workers: LocalWorkers) -> None:
    with lp.pool(workers.clients) as pool:
        futures = [pool.submit(pass_gate, name) for name in "abc"]
        until(lambda: all(served._running for served in workers.served))

        workers.end = courier.WorkerFailed("killed by SIGKILL")
        for number in range(2):
            workers.stop(number)

        for future in futures[:2]:
            with pytest.raises(courier.OutcomeUnknown):
                future.result(DEADLINE_S)
        for future in (futures[2], pool.submit(pool_nodes.double, 1)):
            with pytest.raises(courier.WorkerFailed, match=r"no worker .* worker-1: .*SIGKILL"):
                future.result(DEADLINE_S)
        with pytest.raises(courier.WorkerFailed, match="no worker"):
            list(pool.map(pool_nodes.double, range(1000)))


def test_a_killed_process_takes_part_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_thread, "MAX_LOST", 3)
    program = lp.Program("pool")
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PoolNode(slots=2))

    with lp.launch(program, "test_mp") as running, lp.pool(running.clients("worker")) as pool:
        flag = str(tmp_path / "died")
        again = pool.submit(lp.idempotent(lambda: pool_nodes.die_once(flag)))
        once = pool.submit(pool_nodes.die)
        with pytest.raises(courier.OutcomeUnknown, match=r"worker-\d has ended"):
            once.result(DEADLINE_S)
        name = again.result(DEADLINE_S)
        until(lambda: sum(s.attempt for s in running.status()) >= 3)
        names = set()
        until(
            lambda: names.add(pool.submit(pool_nodes.worker).result(DEADLINE_S)) or len(names) == 2
        )
        with pytest.raises(courier.OutcomeUnknown, match="the job may be the cause"):
            pool.submit(lp.idempotent(partial(pool_nodes.die))).result(DEADLINE_S)

    assert name in {"worker-0", "worker-1"}


def test_a_worker_that_stops_is_left_alone(
    workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_thread, "_POLL_S", 1000.0)
    workers.served[0]._is_stopping = True

    with lp.pool(workers.clients[:1]) as pool:
        (member,) = pool._thread.schedule.members
        until(lambda: member.state is MemberState.UNREACHED)

        assert member.probe_at > time.monotonic() + 500


def test_a_pool_that_nobody_has_runs_what_was_submitted_and_ends(workers: LocalWorkers) -> None:
    pool = lp.pool(workers.clients)
    thread = pool._thread._thread
    future = pool.submit(pass_gate, "a")
    results = pool.map(pool_nodes.double, iter(range(300)))

    del pool
    gates["a"].set()

    assert list(results) == [2 * n for n in range(300)]
    assert future.result(DEADLINE_S) == "a"
    del results
    gc.collect()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_map_gives_what_was_sent_before_the_pool_was_shut_down(workers: LocalWorkers) -> None:
    found: list[int] = []
    with lp.pool(workers.clients) as pool:
        results = pool.map(pool_nodes.double, itertools.count(), chunksize=1)

    with pytest.raises(RuntimeError, match="shut down"):
        found.extend(results)

    assert found == [2 * n for n in range(64)]


def test_a_frame_whose_caller_has_gone_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(pool_worker, "_run_chunk", lambda function, calls: ran.extend(calls))
    served = PoolWorker(slots=0)
    frames = [
        served.run_frame(name, {b"f": Definition((b"", ()), None)}, [(b"f", [name])])
        for name in "ab"
    ]
    frames[1].then(lambda _: served.end())

    frames[0].cancel()
    served._run_frames()

    assert ran == ["b"]
