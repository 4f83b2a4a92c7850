"""A decision of the supervisor about one worker takes as long with hundreds of workers as with a few."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.launch.supervision.due_times import DueTimes
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.outcome import FAILED, STOPPED
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.events import BarrierReached, Done, EndsWatched, Heartbeat
from tests.helpers.supervision import ended, ready, running, worker

POLICY = RestartPolicy(start_timeout_s=30.0, heartbeat_s=60.0, backoff=1.0)


def program(n_workers: int) -> Supervisor:
    """Half of the workers are in one group, the others are groups of their own."""
    plans = [
        worker(
            f"many-{i}" if i % 2 else f"own{i}-0",
            endpoints={f"{i}/courier": "unix:x"},
            restart=POLICY,
            serves_until="group",
        )
        for i in range(n_workers)
    ]
    return running(*plans)


def restarts(supervisor: Supervisor) -> None:
    supervisor.on(ended("many-1", FAILED), 1.0)
    supervisor.on(ended("many-1", FAILED, attempt=2), 2.0)
    supervisor.wake_at()
    supervisor.tick(3.5)
    supervisor.on(ready("many-1", attempt=3), 4.0)
    supervisor.overdue(4.0)
    supervisor.wake_at()


def does_its_work(supervisor: Supervisor) -> None:
    supervisor.on(Heartbeat("many-1", 1), 1.0)
    supervisor.on(Done("many-1", 1), 2.0)
    supervisor.on(ended("own0-0"), 3.0)
    supervisor.wake_at()


def watches_and_waits(supervisor: Supervisor) -> None:
    supervisor.on(EndsWatched("many-1", 1), 1.0)
    supervisor.on(BarrierReached("many-1", 1, "epoch", 1), 1.0)
    supervisor.on(ended("own0-0", FAILED), 3.0)


def ends_while_the_program_stops(supervisor: Supervisor) -> None:
    supervisor.on(ended("many-1", STOPPED), 6.0)
    supervisor.wake_at()
    assert not supervisor.is_over


def lines_of(action: Callable[[Supervisor], object], supervisor: Supervisor) -> int:
    """Return how many lines of Python an action runs; each turn of a loop counts."""
    n_lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n_lines
        n_lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action(supervisor)
    finally:
        sys.settrace(before)
    return n_lines


@pytest.mark.parametrize("action", [restarts, does_its_work, watches_and_waits])
def test_a_decision_about_one_worker_looks_at_no_other(
    action: Callable[[Supervisor], object],
) -> None:
    few = lines_of(action, program(10))
    many = lines_of(action, program(500))

    assert many <= few * 1.2


def test_the_end_of_a_worker_while_the_program_stops_looks_at_no_other() -> None:
    def stopping(n_workers: int) -> Supervisor:
        supervisor = program(n_workers)
        supervisor.stop("the test", 5.0)
        for second in range(n_workers):  # a group is asked after the other
            supervisor.tick(5.0 + 0.2 * second)
        return supervisor

    few = lines_of(ends_while_the_program_stops, stopping(10))
    many = lines_of(ends_while_the_program_stops, stopping(40))

    assert many <= few * 1.2


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 20), st.booleans()),
        max_size=40,
    )
)
def test_items_are_due_when_their_present_time_has_come(
    changes: list[tuple[str, int | None, bool]],
) -> None:
    times: dict[str, int | None] = {}
    due_times: DueTimes[str] = DueTimes(times.get)
    for now, (item, at, takes) in enumerate(changes):
        times[item] = at
        due_times.update(item)
        present = [time for time in times.values() if time is not None]

        assert due_times.next_at() == min(present, default=None)
        if takes:
            due = {name for name, time in times.items() if time is not None and time <= now}
            assert set(due_times.take(now)) == due
            times.update(dict.fromkeys(due))
