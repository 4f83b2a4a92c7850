"""Leases of hosts: when a host ends its workers, and when the launcher takes them for ended."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from launchpad.launch.backends.remote import lease
from launchpad.launch.backends.remote.lease import ENDED_AFTER_S, LEASE_S, HostLease, Renewals

SEEDS = range(200)


class World:
    """A clock that a test sets, and messages that arrive later or never."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.is_cut = False
        self._due: list[tuple[float, Callable[[], object]]] = []

    def clock(self) -> float:
        return self.now

    def send(self, arrive: Callable[[], object]) -> None:
        """Have a message arrive after a delay of up to 1.5 s, unless the cable is pulled before that."""
        self._due.append((self.now + self.random.uniform(0, 1.5), arrive))

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            due = min(self._due, key=lambda entry: entry[0], default=None)
            if due is None or due[0] > until:
                break
            self._due.remove(due)
            self.now = due[0]
            if not self.is_cut:
                due[1]()
        self.now = until


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_is_cut_off_ends_its_workers_before_the_launcher_takes_them_for_ended(
    seed: int,
) -> None:
    world = World(seed)
    of_host = HostLease(lambda: None, world.clock)
    renewals = Renewals(world.clock)

    def renew() -> Future[Any]:
        future = Future[Any]()

        def arrive() -> None:
            of_host.renew()
            world.send(lambda: future.set_result(None))

        world.send(arrive)
        return future

    renewals._renewals["host"] = lease._Renewal(renew, lambda: None, world.clock, world.now)
    for _ in range(world.random.randrange(30)):
        renewals._renew_all()
        world.pass_time(1.0)
        assert not of_host.has_ended()
    world.is_cut = True
    world.pass_time(world.random.uniform(0, 5))
    left_s = renewals.stop("host")
    began_at = world.now
    while not of_host.has_ended():
        world.pass_time(0.01)

    assert world.now < began_at + left_s
    assert left_s <= ENDED_AFTER_S


def test_a_lease_runs_from_the_last_answer_that_the_launcher_had() -> None:
    world = World(0)
    of_host = HostLease(lambda: None, world.clock)
    world.now = 5.0
    of_host.renew()  # the launcher had the answer at 0 s, and gets the one of now later, or never

    world.now = LEASE_S - 0.1
    assert not of_host.has_ended()
    world.now = LEASE_S
    assert of_host.has_ended()
    of_host.renew()  # the launcher had the answer at 5 s
    assert not of_host.has_ended()


def test_the_end_of_a_lease_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_LOOK_S", 0.001)
    world = World(0)
    ends: list[float] = []
    has_ended = threading.Event()

    def on_end() -> None:
        ends.append(world.now)
        has_ended.set()

    of_host = HostLease(on_end, world.clock)
    of_host.begin()
    world.now = LEASE_S

    assert has_ended.wait(60)
    assert ends == [LEASE_S]


def test_a_host_without_a_lease_need_not_be_waited_for() -> None:
    assert Renewals().stop("host") == 0


def test_a_host_that_is_connected_and_does_not_answer_is_given_up_once() -> None:
    world = World(0)
    renewals = Renewals(world.clock)
    given_up: list[float] = []
    unanswered = Future[Any]()
    renewals._renewals["host"] = lease._Renewal(
        lambda: unanswered, lambda: given_up.append(world.now), world.clock, world.now
    )

    for _ in range(30):
        renewals._renew_all()
        world.pass_time(1.0)

    assert given_up == [ENDED_AFTER_S]
    assert renewals.stop("host") == 0


def test_a_host_that_was_given_up_is_forgotten_when_its_lease_must_have_ended() -> None:
    world = World(0)
    renewals = Renewals(world.clock)
    renewals._renewals["host"] = lease._Renewal(Future[Any], lambda: None, world.clock, world.now)
    world.pass_time(2.0)
    renewals.stop("host")

    world.pass_time(ENDED_AFTER_S - 3.0)
    renewals._renew_all()
    assert renewals.stop("host") == 1.0
    world.pass_time(1.0)
    renewals._renew_all()
    assert not renewals._renewals


def test_a_cluster_that_is_gone_does_not_end_the_thread_that_renews_leases() -> None:
    world = World(0)
    renewals = Renewals(world.clock)

    def renew() -> Future[Any]:
        raise ConnectionError("the cluster is gone")

    renewals._renewals["host"] = lease._Renewal(renew, lambda: None, world.clock, world.now)

    renewals._renew_all()

    assert renewals.stop("host") == ENDED_AFTER_S
