"""Deadlines that the supervisor keeps for heartbeats, starts and waits of workers."""

from __future__ import annotations

from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.counters import MethodCounts
from launchpad.courier.telemetry.registry import Counted
from launchpad.launch.supervision import look
from launchpad.launch.supervision.worker_state import Deadline, WorkerState
from launchpad.outcome import FAILED, STOPPED
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.commands import AnnounceWatermarks, KillWorker, StartWorker, StopWorker
from launchpad.runtime.events import Debugged, EdgesCounted, Exiting, Heartbeat
from launchpad.runtime.watermarks import COUNTS
from tests.helpers.supervision import ended, ready, running, supervisor, worker

BEATS = RestartPolicy(heartbeat_s=10, backoff=0)


def test_a_worker_that_runs_and_sends_no_heartbeat_in_time_is_killed_and_started_again() -> None:
    watcher = running(worker("a-0", restart=BEATS), worker("b-0", restart=BEATS))
    watcher.on(Heartbeat("a-0", 1), 5.0)

    assert watcher.wake_at() == 10.0
    assert watcher.overdue(10.0) == [KillWorker("b-0", "sent no heartbeat for 10 s")]
    assert watcher.overdue(14.9) == []
    commands = watcher.on(ended("b-0", STOPPED, hung=True), 10.5)

    assert commands[-1] == StartWorker("b-0", 2)
    outcome = watcher.workers["b-0"].outcome
    assert outcome is not None
    assert (outcome.kind, outcome.error_type) == (FAILED, "HeartbeatTimeout")
    assert outcome.cause == "sent no heartbeat for heartbeat_s=10, and was killed"


def test_no_heartbeat_is_expected_of_one_that_is_not_ready_serves_only_saves_or_stops() -> None:
    names = ("new-0", "serves-0", "exits-0", "saves-0", "stops-0")
    watcher = supervisor(*(worker(name, restart=BEATS) for name in names))
    watcher.start_all()
    watcher.on(ready("serves-0", runs=False), 0.0)
    for name in ("exits-0", "saves-0", "stops-0"):
        watcher.on(ready(name), 0.0)
    watcher.on(Exiting("exits-0", 1), 1.0)
    watcher.on(Heartbeat("saves-0", 1, is_last=True), 1.0)  # its run has ended
    assert [c.worker for c in watcher.overdue(10.0)] == ["stops-0"]
    watcher.on(ready("new-0"), 100.0)
    watcher.stop("enough", 101.0)

    assert watcher.overdue(111.0) == []


def test_neither_a_heartbeat_nor_the_end_of_its_constructor_is_expected_of_one_in_a_debugger() -> (
    None
):
    policy = RestartPolicy(heartbeat_s=10, start_timeout_s=20, backoff=0)
    watcher = supervisor(worker("runs-0", restart=policy), worker("starts-0", restart=policy))
    watcher.start_all()
    watcher.on(ready("runs-0"), 0.0)
    for name in ("runs-0", "starts-0"):
        watcher.on(Debugged(name, 1, "in pdb"), 1.0)
    assert watcher.wake_at() is None

    for name in ("runs-0", "starts-0"):
        watcher.on(Debugged(name, 1), 100.0)

    assert watcher.workers["runs-0"].current.deadlines == {Deadline.HEARTBEAT: 110}
    assert watcher.workers["starts-0"].current.deadlines == {Deadline.READY: 120}


def test_counts_that_come_after_later_ones_or_the_last_ones_change_nothing() -> None:
    watcher = running(worker("a-0"))
    later, earlier = (EdgesCounted("a-0", 1, n, False, Counted({}, {})) for n in (8, 7))
    last = EdgesCounted("a-0", 1, 0, True, Counted({}, {}))

    for report in (later, earlier):
        watcher.on(report, 1.0)
    assert watcher.workers["a-0"].counts.last == later
    for report in (last, later):
        watcher.on(report, 1.0)
    assert watcher.workers["a-0"].counts.last == last


def test_counts_of_attempts_that_have_ended_are_kept_as_one_sum() -> None:
    def call(n: int) -> Counted:
        counts = MethodCounts()
        counts.started = n
        return Counted({("a-0", "s-0", "step"): call_stats.of(counts)}, {})

    worker_state = WorkerState(worker("a-0"))

    for attempt in range(1, 101):
        worker_state.next_attempt(0.0)
        is_last = attempt != 50
        worker_state.counts = worker_state.counts.taking(
            EdgesCounted("a-0", attempt, 1, is_last, call(attempt))
        )

    counts = worker_state.counts
    assert len(counts.earlier.made) == 1
    assert counts.total.made["a-0", "s-0", "step"].calls == sum(range(1, 101))
    assert look.edges([worker_state], (), 0.0).total(caller="a-0").calls == sum(range(1, 101))
    assert counts.is_lacking


def test_a_worker_that_was_not_ready_when_numbers_were_asked_for_is_not_waited_for() -> None:
    watcher = supervisor(worker("a-0"), worker("b-0"))
    watcher.start_all()
    watcher.on(ready("a-0"), 0.0)

    commands = watcher.request_counts(7)
    watcher.on(ready("b-0"), 1.0)

    assert commands == [AnnounceWatermarks("a-0", {COUNTS: 7})]
    assert [w.has_answered(7) for w in watcher.workers.values()] == [False, True]


def test_members_of_a_group_that_is_started_again_need_no_heartbeats_while_they_stop() -> None:
    policy = RestartPolicy(heartbeat_s=1, scope="group", backoff=0)
    watcher = running(worker("a-0", restart=policy), worker("a-1", restart=policy))

    assert StopWorker("a-1", restarts=True) in watcher.on(ended("a-0", FAILED), 0.5)

    assert watcher.overdue(1.5) == []


def test_a_supervisor_that_did_not_run_itself_gives_those_that_were_late_some_time() -> None:
    watcher = running(worker("a-0", restart=BEATS))

    assert watcher.overdue(25.0) == []  # all were stopped, perhaps, as by Ctrl-Z
    again_at = watcher.wake_at()
    assert again_at is not None
    assert watcher.overdue(again_at) == [KillWorker("a-0", "sent no heartbeat for 10 s")]
