"""The run context: whose code runs, and stop handlers."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

import launchpad as lp
from launchpad import address as addresses
from launchpad import courier
from launchpad.errors import NotRunningError
from launchpad.runtime import context
from launchpad.runtime.addresses import KnownAddresses
from launchpad.runtime.context import RunContext
from launchpad.runtime.interrupt import Interruption
from launchpad.runtime.link import SupervisorLink
from launchpad.state.own_state import OwnState
from launchpad.state.places import StatePlaces


def a_context(name: str = "w-0") -> RunContext:
    return RunContext(
        "program",
        name,
        "w",
        0,
        1,
        1,
        0,
        "test_mt",
        link=SupervisorLink(name, 1),
        state=OwnState(name, StatePlaces("", "")),
    )


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_a_handler_registered_while_the_stop_is_asked_is_called_exactly_once() -> None:
    counts = set()

    for _ in range(2000):
        me, calls = a_context(), [0]

        def count(calls: list[int] = calls) -> None:
            calls[0] += 1

        asks = threading.Thread(target=me.stop.request)
        asks.start()
        me.stop.add_handler(count)
        asks.join()
        counts.add(calls[0])

    assert counts == {1}


def test_a_part_of_a_worker_stops_with_it_and_asks_about_it_for_itself() -> None:
    me = a_context()
    part = me.child(0, Interruption())
    calls: list[str] = []
    part.stop.add_handler(lambda: part.stop.add_handler(lambda: calls.append("inner")))

    me.stop.request()

    assert part.stop.event.is_set()
    assert calls == ["inner"], "a handler registered by a handler is called once"
    assert (part.stop.is_watched, me.stop.is_watched) == (True, False)


def who() -> tuple[str | None, str | None]:
    """The worker of the thread that runs this, and of a thread that it starts."""
    found: list[RunContext | None] = []
    thread = threading.Thread(target=lambda: found.append(context.try_current()))
    thread.start()
    thread.join()
    me, other = context.try_current(), found[0]
    return me and me.name, other and other.name


def call_as_worker(server: courier.Server) -> tuple[str | None, str | None]:
    """What `who` says that is called by a thread of the worker `caller`."""
    with context.entered(a_context("caller")), courier.Client(server.address) as client:
        answer: tuple[str | None, str | None] = client.who()
    return answer


@pytest.mark.parametrize("owner", ["server", None])
def test_a_method_belongs_to_the_servers_worker_not_to_its_callers(owner: str | None) -> None:
    with context.entered(a_context(owner)) if owner else contextlib.nullcontext():
        context.inherit()
        server = courier.Server("server", address="inproc:test_context")
        server.bind("who", who)
        server.start()

    answers = {call_as_worker(server) for _ in range(3)}
    server.stop()

    assert answers == {(owner, owner)}


def test_an_address_may_not_be_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_RESOLVE_S", 0.02)
    moving = dataclasses.replace(a_context(), addresses=KnownAddresses(can_move=True))
    board = lp.Address("port")
    board.name = "board-0/port"

    with (
        context.entered(moving),
        pytest.raises(
            NotRunningError,
            match=r"the endpoint of 'board-0/port' was not known for 0.02 s: board-0 has",
        ),
    ):
        board.resolve()


def test_a_service_that_listens_on_this_host_only_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        worker = dataclasses.replace(
            a_context(), addresses=KnownAddresses({"web-0/http": f"127.0.0.2:{port}"})
        )
        address = lp.Address("http")
        address.name = "web-0/http"

        with (
            context.entered(worker),
            pytest.raises(TimeoutError, match=rf"listens at 127.0.0.1:{port} .* on 127.0.0.2"),
        ):
            address.wait(timeout_s=0.05)
