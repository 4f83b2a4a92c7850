"""Barriers, as the supervisor keeps them."""

from __future__ import annotations

from typing import Any

from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.outcome import FAILED
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.commands import AnnounceWatermarks
from launchpad.runtime.events import BarrierLeft, BarrierReached
from tests.helpers.supervision import ended, running, worker


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
