"""Restarts that the supervisor decides on: of a worker, a group or the program, and when no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchpad.launch.supervision.worker_state import PrintNote
from launchpad.outcome import FAILED, STOPPED
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.commands import AnnounceGone, KillWorker, StartWorker, StopWorker
from launchpad.runtime.events import Done, Exiting, Ready
from tests.helpers.supervision import GROUP, ended, ready, running, starts, supervisor, worker

TWICE = RestartPolicy(max_restarts=2, within_s=60, backoff=0.5)
PROGRAM = RestartPolicy(max_restarts=2, within_s=60, scope="program")


def test_a_failed_worker_is_started_again_now_and_then_after_longer_and_longer() -> None:
    watcher = running(worker("a-0", restart=TWICE), worker("b-0"))

    assert watcher.on(ended("a-0", FAILED, cause="ValueError: boom"), 1.0) == [
        PrintNote(
            "a-0 failed in run (attempt 1): ValueError: boom; it is started again now (1 of 2 within 60 s)"
        ),
        StartWorker("a-0", 2),
    ]
    assert starts(watcher.on(ended("a-0", FAILED, attempt=2), 2.0)) == []
    assert watcher.workers["a-0"].state == "restarting"
    assert watcher.wake_at() == 2.5
    assert watcher.tick(2.5) == [StartWorker("a-0", 3)]
    assert not watcher.is_stopping


def test_f25_one_restart_too_many_ends_the_program_and_every_death_is_listed() -> None:
    watcher = running(worker("a-0", restart=TWICE), worker("b-0"))
    for attempt in (1, 2, 3):
        watcher.on(ended("a-0", FAILED, attempt=attempt, cause=f"death {attempt}"), attempt)
        watcher.tick(attempt + 0.9)

    (failure,) = watcher.failures
    assert failure.cause == "death 3"
    assert [line.rpartition(": ")[2] for line in failure.earlier] == ["death 1", "death 2"]
    assert "max_restarts=2, within_s=60" in failure.hint
    assert watcher.is_stopping


def test_restarts_that_are_long_ago_count_no_more_and_are_forgotten() -> None:
    watcher = running(worker("a-0", restart=TWICE))
    for attempt in range(1, 20):
        watcher.on(ended("a-0", FAILED, attempt=attempt), attempt * 100.0)

    assert watcher.workers["a-0"].attempt == 20
    assert not watcher.failures
    assert len(watcher._restart_history["a-0"]) == 1


def test_what_a_replaced_attempt_says_is_ignored() -> None:
    watcher = running(worker("a-0", restart=TWICE))
    watcher.on(ended("a-0", FAILED), 1.0)

    assert watcher.on(ended("a-0", FAILED, attempt=1), 1.1) == []
    assert watcher.on(Ready("a-0", 1, True), 1.1) == []
    assert watcher.on(Done("a-0", 1), 1.1) == []
    assert watcher.workers["a-0"].state == "starting"
    assert watcher.failures == []


def test_a_group_is_restarted_together_when_all_of_it_has_stopped() -> None:
    watcher = running(*(worker(f"rank-{i}", restart=GROUP) for i in range(3)), worker("b-0"))

    commands = watcher.on(ended("rank-1", FAILED), 1.0)

    assert commands[1:] == [
        StopWorker("rank-0", restarts=True),
        StopWorker("rank-2", restarts=True),
    ]
    assert watcher.on(ended("rank-0", STOPPED), 1.1) == []
    assert watcher.on(ended("rank-2", FAILED, cause="a consequence"), 1.2) == [
        StartWorker("rank-0", 2),
        StartWorker("rank-1", 2),
        StartWorker("rank-2", 2),
    ]
    assert watcher.failures == []
    assert watcher.workers["b-0"].state == "running"


def test_who_does_not_stop_for_a_restart_is_killed_after_its_grace_period() -> None:
    watcher = running(*(worker(f"rank-{i}", restart=GROUP) for i in range(2)), grace_s=3.0)
    watcher.on(ended("rank-1", FAILED), 1.0)

    assert watcher.wake_at() == 4.0
    assert watcher.tick(4.0) == [KillWorker("rank-0")]
    assert starts(watcher.on(ended("rank-0", STOPPED), 4.1)) == [
        StartWorker("rank-0", 2),
        StartWorker("rank-1", 2),
    ]


def test_the_whole_program_is_restarted_in_order_after_it_was_stopped_in_reverse_order() -> None:
    watcher = running(worker("server-0", restart=PROGRAM), worker("a-0"), serving=("server-0",))

    assert watcher.on(ended("server-0", FAILED), 1.0)[1:] == [StopWorker("a-0", restarts=True)]
    assert watcher.on(ended("a-0", STOPPED), 1.1) == [
        StartWorker("server-0", 2),
        StartWorker("a-0", 2),
    ]


def test_two_restarts_that_overlap_become_one() -> None:
    watcher = running(
        worker("a-0", restart=GROUP), worker("a-1", restart=GROUP), worker("b-0", restart=PROGRAM)
    )
    watcher.on(ended("a-0", FAILED), 1.0)

    watcher.on(ended("b-0", FAILED), 1.1)
    commands = watcher.on(ended("a-1", STOPPED), 1.2)

    assert starts(commands) == [StartWorker("a-0", 2), StartWorker("a-1", 2), StartWorker("b-0", 2)]


def test_a_stop_while_a_restart_is_due_ends_the_program_well() -> None:
    watcher = running(worker("a-0", restart=TWICE))
    watcher.on(ended("a-0", FAILED), 1.0)
    watcher.on(ended("a-0", FAILED, attempt=2), 1.1)

    watcher.stop("why", 1.2)

    assert watcher.is_over
    assert watcher.failures == []


def test_a_server_that_comes_back_with_its_group_is_no_longer_gone() -> None:
    serving = {"endpoints": {"a-0/courier": "x"}}
    watcher = running(
        worker("a-0", restart=GROUP, **serving), worker("a-1", restart=GROUP), worker("b-0")
    )
    gone = watcher.on(ended("a-0"), 1.0)
    assert [list(c.gone) for c in gone if isinstance(c, AnnounceGone)] == [["a-0"]]

    commands = watcher.on(ended("a-1", FAILED), 2.0)

    assert commands[1:] == [StartWorker("a-0", 2), AnnounceGone({"a-0": ""}), StartWorker("a-1", 2)]


def test_a_restarted_worker_learns_who_has_gone_before_it_started() -> None:
    serving = {"endpoints": {"server-0/courier": "x"}}
    watcher = running(worker("server-0", **serving), worker("a-0", restart=TWICE), worker("b-0"))
    (announcement,) = watcher.on(ended("server-0"), 1.0)

    commands = watcher.on(ended("a-0", FAILED), 2.0)

    assert commands[1:] == [StartWorker("a-0", 2), replace(announcement, to="a-0")]


def test_f15_who_is_not_ready_in_time_is_killed_and_that_is_a_failure() -> None:
    slow = RestartPolicy(max_restarts=1, start_timeout_s=5)
    watcher = supervisor(worker("a-0", restart=slow), worker("in-time-0", restart=slow))
    watcher.start_all(10.0)
    watcher.on(ready("in-time-0"), 14.9)

    assert watcher.wake_at() == 15.0
    assert watcher.tick(15.0) == [KillWorker("a-0", "was not ready within 5 s")]
    assert watcher.tick(16.0) == []
    assert starts(watcher.on(ended("a-0", STOPPED), 16.1)) == [StartWorker("a-0", 2)]
    watcher.on(ended("a-0", STOPPED, attempt=1), 16.2)
    assert watcher.tick(21.2) == [KillWorker("a-0", "was not ready within 5 s")]
    watcher.on(ended("a-0", STOPPED, attempt=2, phase="init"), 21.3)
    (failure,) = watcher.failures
    assert (failure.kind, failure.error_type, failure.phase) == (FAILED, "StartTimeout", "init")
    assert "start_timeout_s=5" in failure.cause


def test_sound_03_a_process_that_exits_neither_in_time_nor_when_it_is_killed_has_failed() -> None:
    watcher = running(*(worker(f"{label}-0") for label in "abc"), grace_s=8.0)
    for name, at in (("a-0", 10.0), ("b-0", 10.0), ("c-0", 11.0)):
        watcher.on(Exiting(name, 1), at)
    cause = "has done its work, and its process does not exit"

    assert watcher.wake_at() == 18.0
    assert watcher.on(ended("c-0"), 12.0) == []
    assert watcher.tick(18.0) == [KillWorker("a-0", cause), KillWorker("b-0", cause)]
    assert watcher.tick(19.0) == []
    watcher.on(ended("b-0"), 19.0)  # it has exited just before
    watcher.on(ended("a-0", STOPPED, hung=True), 19.0)
    (failure,) = watcher.failures
    assert (failure.worker, failure.kind) == ("a-0", FAILED)


def test_the_grace_period_of_a_policy_counts_more_than_the_program_s() -> None:
    quick, patient = RestartPolicy(stop_grace_s=1), RestartPolicy(stop_grace_s=-1)
    watcher = running(
        worker("a-0", restart=quick), worker("b-0"), worker("c-0", restart=patient), grace_s=5.0
    )
    watcher.stop("why", 10.0)

    assert watcher.wake_at() == pytest.approx(10.2)
    times = (10.2, 10.4, 11.0, 12.0, 15.0, 16.0, 1000.0)
    killed = [(t, c.worker) for t in times for c in watcher.tick(t) if isinstance(c, KillWorker)]
    assert killed == [(11.0, "a-0"), (15.0, "b-0")]
