"""The supervisor decides without touching anything: reports and the time in, commands out."""

from __future__ import annotations

import pytest

from launchpad.launch.supervision.worker_state import PrintNote
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
    Done,
    EndsWatched,
    Exiting,
    ProcessStarted,
    StopRequested,
    Waiting,
)
from tests.helpers.supervision import GROUP, ended, ready, running, supervisor, worker


def test_a_restart_that_a_user_asks_for_is_the_cause_and_counts_against_no_limit() -> None:
    watcher = running(worker("a-0", restart=RestartPolicy(max_restarts=1)), worker("b-0"))

    commands = watcher.restart("a-0", "as asked", 1.0)
    later_commands = watcher.on(ended("a-0", FAILED, cause="ValueError: late"), 2.0)
    outcome = watcher.workers["a-0"].outcome
    note, *after_a_failure = watcher.on(ended("a-0", FAILED, attempt=2), 3.0)

    assert commands == [PrintNote("a-0: as asked"), StopWorker("a-0", restarts=True)]
    assert later_commands == [StartWorker("a-0", 2)]
    assert outcome is not None
    assert outcome.cause == "as asked; ValueError: late"
    assert "(1 of 1 within 60 s)" in str(note)
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

    note, announcement = watcher.on(ended("ends-0"), 2.0)

    assert "(serves-0)" in note.text
    assert list(announcement.gone) == ["ends-0"]


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
        AnnounceGone({"b-0": "b-0 failed in run (attempt 1): ValueError: boom"}),
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


def test_those_that_want_to_know_are_told_of_the_ends_before_and_after() -> None:
    again = RestartPolicy(backoff=0)
    watcher = running(worker("a-0", restart=again), worker("b-0"), worker("c-0"))
    watcher.on(ended("a-0", FAILED), 1.0)

    assert watcher.on(EndsWatched("b-0", 1), 2.0) == [AnnounceWatermarks("b-0", {"ended/a-0": 1})]
    assert AnnounceWatermarks("b-0", {"ended/a-0": 2}) in watcher.on(ended("a-0", FAILED, 2), 3.0)
    commands = watcher.on(ended("c-0"), 4.0)
    marks = {"ended/c-0": 1, "succeeded/c-0": 1, "over/c-0": 1}
    assert AnnounceWatermarks("b-0", marks) in commands


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

    commands = watcher.on(ended("a-0", kind), 2.0)

    assert AnnounceWatermarks("b-0", {"ended/a-0": 1, **marks}) in commands
    assert (StartWorker("a-0", 2) in commands) is (policy.mode == "always")


def test_those_that_want_to_know_are_told_of_one_that_was_over_and_is_started_again_with_its_group() -> (
    None
):
    watcher = running(*(worker(f"a-{i}", restart=GROUP) for i in range(2)), worker("b-0"))
    watcher.on(EndsWatched("b-0", 1), 1.0)
    watcher.on(ended("a-0"), 2.0)

    commands = watcher.on(ended("a-1", FAILED), 3.0)

    assert [each for each in commands if isinstance(each, AnnounceWatermarks)] == [
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
