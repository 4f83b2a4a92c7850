"""The supervisor decides without touching anything: reports and the time in, commands out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.counters import MethodCounts
from launchpad.courier.telemetry.registry import Counted
from launchpad.launch.plan import LaunchPlan, WorkerPlan, WorkerPolicy
from launchpad.launch.supervision import look
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Deadline, PrintNote, WorkerState
from launchpad.outcome import FAILED, STOPPED, SUCCEEDED, Outcome, first_cause
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import (
    BarrierLeft,
    BarrierReached,
    Debugged,
    Done,
    EdgesCounted,
    Ended,
    EndsWatched,
    Exiting,
    Heartbeat,
    ProcessStarted,
    Ready,
    StopRequested,
    Waiting,
)
from launchpad.runtime.watermarks import COUNTS


def worker(
    name: str, *, endpoints: Mapping[str, str] = MappingProxyType({}), **policy: Any
) -> WorkerPlan:
    group, _, index = name.rpartition("-")
    rules = WorkerPolicy(**policy)
    return WorkerPlan(name, group, int(index), 1, "Node", 0, endpoints=endpoints, policy=rules)


def supervisor(*workers: WorkerPlan, grace_s: float = 10.0) -> Supervisor:
    return Supervisor(LaunchPlan("p", "local_mt", workers), grace_s)


def ended(name: str, kind: str = SUCCEEDED, attempt: int = 1, **more: Any) -> Ended:
    return Ended(Outcome(name, kind, attempt=attempt, **more))


def ready(name: str, runs: bool = True, attempt: int = 1) -> Ready:
    return Ready(name, attempt, runs)


def running(
    *workers: WorkerPlan, serving: tuple[str, ...] = (), grace_s: float = 10.0
) -> Supervisor:
    """A supervisor whose workers are all ready."""
    watcher = supervisor(*workers, grace_s=grace_s)
    watcher.start_all()
    for plan in workers:
        watcher.on(ready(plan.name, plan.name not in serving), 0.0)
    return watcher


def test_a_restart_that_a_user_asks_for_is_the_cause_and_counts_against_no_limit() -> None:
    watcher = running(worker("a-0", restart=RestartPolicy(max_restarts=1)), worker("b-0"))

    asked = watcher.restart("a-0", "as asked", 1.0)
    restarted = watcher.on(ended("a-0", FAILED, cause="ValueError: late"), 2.0)
    outcome = watcher.workers["a-0"].outcome
    noted, *after_a_failure = watcher.on(ended("a-0", FAILED, attempt=2), 3.0)

    assert asked == [PrintNote("a-0: as asked"), StopWorker("a-0", restarts=True)]
    assert restarted == [StartWorker("a-0", 2)]
    assert outcome is not None
    assert outcome.cause == "as asked; ValueError: late"
    assert "(1 of 1 within 60 s)" in str(noted)
    assert after_a_failure == [StartWorker("a-0", 3)]


def test_a_user_restarts_what_waits_for_its_backoff_or_has_ended_at_once() -> None:
    waits = RestartPolicy(mode="always", backoff=100.0, within_s=1000.0)
    watcher = running(worker("a-0", restart=waits), worker("b-0"), worker("c-0"))
    watcher.on(ended("a-0"), 1.0)
    watcher.on(ended("a-0", attempt=2), 2.0)
    watcher.on(ended("b-0"), 3.0)

    starts = [c for name in ("a-0", "b-0") for c in watcher.restart(name, "", 4.0)]

    assert [c for c in starts if isinstance(c, StartWorker)] == [
        StartWorker("a-0", 3),
        StartWorker("b-0", 2),
    ]


def test_the_program_ends_when_all_with_something_to_run_have_ended() -> None:
    watcher = running(worker("server-0"), worker("a-0"), worker("a-1"), serving=("server-0",))

    assert watcher.on(ended("a-0"), 1.0) == []
    assert watcher.on(ended("a-1"), 2.0) == [StopWorker("server-0")]


def test_a_worker_s_process_is_known_from_its_start_to_its_end() -> None:
    policy = RestartPolicy(backoff=0)
    watcher = supervisor(worker("a-0", restart=policy), worker("b-0"))
    watched = watcher.workers["a-0"]

    assert watcher.start_all(7.0) == [StartWorker("a-0", 1), StartWorker("b-0", 1)]
    assert (watched.current.pid, watched.current.started_at) == (0, 7.0)
    watcher.on(ProcessStarted("a-0", 1, 123), 8.0)
    assert watched.current.pid == 123
    watcher.on(ended("a-0", FAILED), 9.0)
    watcher.on(ProcessStarted("a-0", 1, 123), 9.0)  # the first attempt's, too late
    assert (watched.current.pid, watched.current.started_at, watched.attempt) == (0, 9.0, 2)


def test_sound_04_who_waits_for_a_program_that_will_never_end_is_told_so_once() -> None:
    watcher = supervisor(worker("a-0"), worker("b-0"))
    watcher.start_all()
    assert watcher.await_end() == []
    assert watcher.on(ready("a-0", runs=False), 1.0) == []

    (note,) = watcher.on(ready("b-0", runs=False), 2.0)

    assert "no worker has a run()" in note.text
    assert "(a-0, b-0)" in note.text
    assert watcher.await_end() == []


def test_sound_04_who_waits_for_a_main_group_that_only_serves_is_told_so() -> None:
    watcher = supervisor(worker("a-0"), worker("b-0", main=True))
    watcher.start_all()
    watcher.on(ready("a-0", runs=True), 1.0)
    assert watcher.on(ready("b-0", runs=False), 2.0) == []

    (note,) = watcher.await_end()

    assert "no worker of a main group has a run()" in note.text


def test_sound_04_who_ends_when_that_is_noted_is_gone_for_all_others() -> None:
    ends, serves = (
        worker("ends-0", main=True, endpoints={"ends-0/courier": "unix:e"}),
        worker("serves-0", main=True),
    )
    watcher = supervisor(ends, serves)
    watcher.start_all()
    watcher.await_end()
    watcher.on(ready("ends-0"), 1.0)
    watcher.on(ready("serves-0", runs=False), 1.0)

    note, gone = watcher.on(ended("ends-0"), 2.0)

    assert "(serves-0)" in note.text
    assert gone.worker == "ends-0"


def test_no_worker_stops_before_the_last_one_is_known_to_run_nothing() -> None:
    watcher = supervisor(worker("slow-0"), worker("a-0"))
    watcher.start_all()
    watcher.on(ready("a-0"), 0.0)

    assert watcher.on(ended("a-0"), 1.0) == []
    assert watcher.on(ready("slow-0", runs=False), 2.0) == [StopWorker("slow-0")]


def test_a_worker_that_is_done_and_only_serves_does_not_keep_the_program_alive() -> None:
    watcher = running(worker("a-0"), worker("b-0"))

    assert watcher.on(Done("a-0", 1), 1.0) == []
    assert watcher.on(ended("b-0"), 2.0) == [StopWorker("a-0")]


def test_a_failure_is_told_to_all_and_stops_the_program() -> None:
    watcher = running(worker("a-0"), worker("b-0"))

    commands = watcher.on(ended("b-0", FAILED, cause="ValueError: boom"), 1.0)

    assert commands == [
        PrintNote("b-0 failed in run (attempt 1): ValueError: boom"),
        AnnounceGone("b-0", "b-0 failed in run (attempt 1): ValueError: boom"),
        StopWorker("a-0"),
    ]
    assert watcher.failures[0].worker == "b-0"


def test_groups_are_asked_in_reverse_order_each_when_the_former_has_ended() -> None:
    watcher = running(worker("a-0"), worker("b-0"), worker("b-1"), worker("c-0"))

    assert watcher.stop("why", 1.0) == [StopWorker("c-0")]
    assert watcher.on(ended("c-0", STOPPED), 1.01) == [StopWorker("b-0"), StopWorker("b-1")]
    assert watcher.on(ended("b-0", STOPPED), 1.02) == []
    assert watcher.on(ended("b-1", STOPPED), 1.03) == [StopWorker("a-0")]
    assert watcher.on(ended("a-0", STOPPED), 1.04) == []
    assert watcher.is_over


def test_what_stops_last_has_half_of_the_grace_period_for_itself() -> None:
    watcher = running(worker("a-0", stops_last=True), worker("b-0"), grace_s=4.0)
    watcher.stop("why", 1.0)

    assert watcher.wake_at() == pytest.approx(3.0)
    assert watcher.tick(3.0) == [StopWorker("a-0")]
    assert watcher.tick(5.0) == [KillWorker("b-0")]
    assert watcher.tick(6.9) == []
    assert watcher.tick(7.0) == [KillWorker("a-0")]


def test_what_stops_last_is_not_killed_before_it_was_asked() -> None:
    quick, slow = RestartPolicy(stop_grace_s=2.0), RestartPolicy(stop_grace_s=120.0)
    watcher = running(
        worker("a-0", stops_last=True, restart=quick), worker("b-0", restart=slow), grace_s=10.0
    )
    watcher.stop("why", 1.0)

    assert watcher.tick(60.0) == []
    assert watcher.tick(61.0) == [StopWorker("a-0")]
    assert watcher.tick(63.0) == [KillWorker("a-0")]


def test_what_stops_last_is_asked_when_all_others_have_ended_and_holds_back_none() -> None:
    last = worker("b-0", stops_last=True)
    watcher = running(worker("a-0"), last, worker("b-1"), worker("c-0"), grace_s=4.0)

    assert watcher.stop("why", 1.0) == [StopWorker("c-0")]
    assert watcher.wake_at() == pytest.approx(1.2)
    assert watcher.tick(1.1) == []
    assert watcher.tick(1.21) == [StopWorker("b-1")]
    assert watcher.on(ended("b-1", STOPPED), 1.3) == []
    assert watcher.tick(1.5) == [StopWorker("a-0")]
    assert watcher.on(ended("a-0", STOPPED), 1.6) == []
    assert watcher.on(ended("c-0", STOPPED), 1.7) == [StopWorker("b-0")]


def test_with_a_negative_grace_period_nothing_is_killed_and_each_end_is_waited_for() -> None:
    watcher = running(worker("a-0", stops_last=True), worker("b-0"), grace_s=-1.0)
    watcher.on(Exiting("b-0", 1), 0.5)
    assert watcher.wake_at() is None

    watcher.stop("why", 1.0)

    assert watcher.wake_at() is None
    assert watcher.tick(1e9) == []
    assert watcher.on(ended("b-0", STOPPED), 1e9) == [StopWorker("a-0")]


def test_a_grace_period_of_zero_kills_at_once() -> None:
    watcher = running(worker("a-0"), grace_s=0.0)

    assert watcher.stop("why", 1.0) == [StopWorker("a-0"), KillWorker("a-0", at_once=True)]


def test_stop_asked_by_a_worker_stops_the_program_well_and_once() -> None:
    watcher = running(worker("a-0"), worker("b-0"))

    assert watcher.on(StopRequested("a-0"), 1.0) == [StopWorker("b-0")]
    assert watcher.stop("again", 1.1) == []
    assert watcher.failures == []
    assert "a-0 called lp.stop()" in watcher.stop_reason


def test_f06_constructors_that_wait_for_each_other_are_a_failure_that_names_the_cycle() -> None:
    watcher = supervisor(*(worker(name) for name in ("a-0", "b-0", "c-0", "slow-0")))
    watcher.start_all()
    watcher.on(Waiting("a-0", "b-0"), 1.0)
    watcher.on(Waiting("b-0", "slow-0"), 1.0)
    watcher.on(ready("slow-0"), 1.0)
    watcher.on(Waiting("b-0", "c-0"), 1.0)
    assert watcher.on(Waiting("slow-0", "a-0"), 1.1) == []  # it is ready: nothing waits for it

    watcher.on(Waiting("c-0", "a-0"), 1.1)

    assert watcher.failures[0].phase == "init"
    assert "c-0 → a-0 → b-0 → c-0" in watcher.failures[0].cause


def test_the_first_cause_is_the_one_that_blames_no_worker_that_failed() -> None:
    consequence = Outcome("actor-0", FAILED, blames="learner-0")
    cause = Outcome("learner-0", FAILED, cause="killed by SIGKILL")

    assert first_cause([consequence, cause]) is cause
    assert first_cause([consequence]) is consequence


# --- restarts ------------------------------------------------------------------------------------

TWICE = RestartPolicy(max_restarts=2, within_s=60, backoff=0.5)
GROUP = RestartPolicy(max_restarts=2, within_s=60, scope="group")
PROGRAM = RestartPolicy(max_restarts=2, within_s=60, scope="program")


def starts(commands: list[Any]) -> list[StartWorker]:
    return [c for c in commands if isinstance(c, StartWorker)]


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
    assert [c.worker for c in gone if isinstance(c, AnnounceGone) and c.why] == ["a-0"]

    commands = watcher.on(ended("a-1", FAILED), 2.0)

    assert commands[1:] == [StartWorker("a-0", 2), AnnounceGone("a-0", ""), StartWorker("a-1", 2)]


def test_a_restarted_worker_learns_who_has_gone_before_it_started() -> None:
    serving = {"endpoints": {"server-0/courier": "x"}}
    watcher = running(worker("server-0", **serving), worker("a-0", restart=TWICE), worker("b-0"))
    (gone,) = watcher.on(ended("server-0"), 1.0)

    assert watcher.on(ended("a-0", FAILED), 2.0)[1:] == [StartWorker("a-0", 2), gone]


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


# --- heartbeats --------------------------------------------------------------------------------

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


# --- barriers ----------------------------------------------------------------------------------


def group_of_three() -> Supervisor:
    return running(*(worker(f"a-{i}") for i in range(3)), worker("b-0"))


def reach(watcher: Supervisor, name: str, number: int, barrier: str = "x") -> list[Any]:
    return watcher.on(BarrierReached(name, 1, barrier, number), 1.0)


def test_all_of_a_group_pass_a_barrier_when_the_last_has_come() -> None:
    watcher = group_of_three()

    assert reach(watcher, "a-0", 7) == reach(watcher, "a-2", 3) == []
    assert reach(watcher, "a-1", 1, "other") == []
    assert reach(watcher, "a-1", 2) == [
        AnnounceWatermarks("a-0", {"barrier/x": 7}),
        AnnounceWatermarks("a-2", {"barrier/x": 3}),
        AnnounceWatermarks("a-1", {"barrier/x": 2}),
    ]
    assert reach(watcher, "a-0", 8) == []  # the next time


def test_one_that_leaves_a_barrier_is_told_who_was_absent_and_is_not_counted() -> None:
    watcher = group_of_three()
    reach(watcher, "a-0", 7)

    assert watcher.on(BarrierLeft("a-0", 1, "x", 7), 2.0) == [
        AnnounceWatermarks("a-0", {"absent/x/a-1": 7, "absent/x/a-2": 7, "left/x": 7})
    ]
    assert reach(watcher, "a-1", 1) == reach(watcher, "a-2", 1) == []


def test_a_barrier_is_broken_for_those_that_wait_and_those_that_come_when_one_has_ended() -> None:
    watcher = group_of_three()
    reach(watcher, "a-0", 7)

    assert watcher.on(ended("a-1"), 2.0) == [AnnounceWatermarks("a-0", {"broken/x/a-1": 7})]
    assert reach(watcher, "a-2", 4) == [AnnounceWatermarks("a-2", {"broken/x/a-1": 4})]


def test_a_barrier_waits_for_one_that_is_started_again() -> None:
    again = RestartPolicy(backoff=0)
    watcher = running(worker("a-0", restart=again), worker("a-1", restart=again))
    reach(watcher, "a-0", 7)
    reach(watcher, "a-1", 1)  # they pass
    reach(watcher, "a-1", 2)
    watcher.on(ended("a-1", FAILED), 2.0)

    assert reach(watcher, "a-0", 8) == []
    watcher.on(BarrierReached("a-1", 2, "x", 1), 3.0)
    assert watcher.on(BarrierReached("a-0", 1, "x", 9), 3.0) == []


# --- ends --------------------------------------------------------------------------------------


def test_those_that_want_to_know_are_told_of_the_ends_before_and_after() -> None:
    again = RestartPolicy(backoff=0)
    watcher = running(worker("a-0", restart=again), worker("b-0"), worker("c-0"))
    watcher.on(ended("a-0", FAILED), 1.0)

    assert watcher.on(EndsWatched("b-0", 1), 2.0) == [AnnounceWatermarks("b-0", {"ended/a-0": 1})]
    assert AnnounceWatermarks("b-0", {"ended/a-0": 2}) in watcher.on(ended("a-0", FAILED, 2), 3.0)
    told = watcher.on(ended("c-0"), 4.0)
    marks = {"ended/c-0": 1, "succeeded/c-0": 1, "over/c-0": 1}
    assert AnnounceWatermarks("b-0", marks) in told


@pytest.mark.parametrize(
    ("policy", "kind", "marks"),
    [
        (RestartPolicy(mode="always", backoff=0), SUCCEEDED, {"succeeded/a-0": 1}),
        (RestartPolicy(max_restarts=0, min_replicas=1), FAILED, {"over/a-0": 1}),
    ],
    ids=["that is not the last", "that the program survives"],
)
def test_those_that_want_to_know_are_told_of_an_end(
    policy: RestartPolicy, kind: str, marks: dict[str, int]
) -> None:
    watcher = running(*(worker(f"a-{i}", restart=policy) for i in range(2)), worker("b-0"))
    watcher.on(EndsWatched("b-0", 1), 1.0)

    told = watcher.on(ended("a-0", kind), 2.0)

    assert AnnounceWatermarks("b-0", {"ended/a-0": 1, **marks}) in told
    assert (StartWorker("a-0", 2) in told) is (policy.mode == "always")


def test_those_that_want_to_know_are_told_of_one_that_was_over_and_is_started_again_with_its_group() -> (
    None
):
    watcher = running(*(worker(f"a-{i}", restart=GROUP) for i in range(2)), worker("b-0"))
    watcher.on(EndsWatched("b-0", 1), 1.0)
    watcher.on(ended("a-0"), 2.0)

    told = watcher.on(ended("a-1", FAILED), 3.0)

    assert [each for each in told if isinstance(each, AnnounceWatermarks)] == [
        AnnounceWatermarks("b-0", {"restarted/a-0": 1}),
        AnnounceWatermarks("b-0", {"ended/a-1": 1}),
    ]


def test_members_that_serve_until_their_group_has_ended_are_stopped_then() -> None:
    until = {"serves_until": "group"}
    plans = [worker(f"a-{i}", **until) for i in range(3)]
    watcher = running(*plans, worker("b-0"), serving=("a-2",))
    watcher.on(Done("a-0", 1), 1.0)

    assert watcher.on(Done("a-1", 1), 1.0) == [StopWorker("a-0"), StopWorker("a-1")]
    assert watcher.on(ended("a-0"), 2.0) == watcher.on(ended("a-1"), 3.0) == []
    assert watcher.on(ended("b-0"), 4.0) == [StopWorker("a-2")]  # which is a service as any other


def test_a_call_that_is_lost_because_its_server_was_stopped_first_is_no_failure() -> None:
    watcher = running(worker("server-0"), worker("client-0"), serving=("server-0",))
    watcher.stop("because", 1.0)
    watcher.tick(2.0)

    watcher.on(ended("server-0", STOPPED), 2.1)
    watcher.on(ended("client-0", FAILED, cause="OutcomeUnknown: lost", blames="server-0"), 2.2)

    outcome = watcher.workers["client-0"].outcome
    assert outcome is not None
    assert (outcome.kind, outcome.cause) == (STOPPED, "OutcomeUnknown: lost, while stopping")
    assert watcher.failures == []
    assert watcher.is_over


@pytest.mark.parametrize(
    ("server_ends", "blames"), [(FAILED, "server-0"), (STOPPED, ""), (STOPPED, "elsewhere-0")]
)
def test_a_failure_while_the_program_stops_is_one_unless_a_server_was_stopped(
    server_ends: str, blames: str
) -> None:
    watcher = running(worker("server-0"), worker("client-0"), serving=("server-0",))
    watcher.stop("because", 1.0)
    watcher.tick(2.0)

    watcher.on(ended("server-0", server_ends), 2.1)
    watcher.on(ended("client-0", FAILED, blames=blames), 2.2)

    assert "client-0" in [failure.worker for failure in watcher.failures]
