"""One thread of a server for many clients that make quick calls, and how others get out of its way."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.server.multiplexer import Multiplexer
from tests.waiting import until

CLIENTS = 6


@pytest.fixture
def clients(connect, unix_address, monkeypatch) -> list[Any]:
    """Each as if it were of another process."""
    number = itertools.count()
    monkeypatch.setattr(caller, "own_peer", lambda: Peer(f"client-{next(number)}"))
    return [connect(unix_address) for _ in range(CLIENTS)]


class Callers:
    """A thread for each client, which calls until `stop`."""

    def __init__(self, clients: list[Any]) -> None:
        self.n_calls = [0] * len(clients)
        self._instead: str | None = None  # of the next call of the first one
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_calling, args=each) for each in enumerate(clients)
        ]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def let_the_first_call(self, method: str) -> None:
        self._instead = method

    def _keep_calling(self, i: int, client: Any) -> None:
        while not self._is_over.is_set():
            if i == 0 and self._instead is not None:
                method, self._instead = self._instead, None
                getattr(client, method)()
            client.echo(7)
            self.n_calls[i] += 1


def served_together(server: Any) -> int:
    multiplexer: Multiplexer = server._core.multiplexer
    return len(multiplexer._connections)


def test_quick_calls_of_many_clients_are_served_by_one_thread(serve, clients, unix_address) -> None:
    server = serve(unix_address, echo=lambda value: value)

    with Callers(clients):
        until(lambda: served_together(server) > 1, within_s=20)

    until(lambda: served_together(server) == 0)  # when none calls
    assert clients[0].echo(1) == 1


def test_a_method_that_blocks_does_not_hold_up_the_others(
    serve, clients, unix_address, gate
) -> None:
    server = serve(unix_address, echo=lambda value: value, hang=gate.wait)

    with Callers(clients) as callers:
        until(lambda: served_together(server) > 1, within_s=20)
        callers.let_the_first_call("hang")
        until(lambda: sum(each[b"hang"].started for each in server._core.counts.values()) == 1)
        first, *others = callers.n_calls
        until(
            lambda: all(n > before for n, before in zip(callers.n_calls[1:], others, strict=True))
        )
        was_blocked = callers.n_calls[0] == first
        gate.set()
        until(lambda: callers.n_calls[0] > first)

    assert was_blocked


def test_a_server_stops_while_it_serves_them(serve, clients, unix_address) -> None:
    server = serve(unix_address, echo=lambda value: value)
    with Callers(clients):
        until(lambda: served_together(server) > 1, within_s=20)

    server.stop()

    assert served_together(server) == 0


class Connection:
    """As much of a connection as the multiplexer needs; what it serves is up to a test."""

    average_s = 0.0

    def __init__(self, serve_now: Callable[[], bool]) -> None:
        self.sock, self.peer = socket.socketpair()
        self.peer.send(b"call")
        self.serve_now = serve_now

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


def test_a_connection_that_gets_the_descriptor_of_one_that_closes_is_not_forgotten() -> None:
    turns: list[Any] = []
    parked: list[Any] = []
    core: Any = SimpleNamespace(
        is_stopping=False,
        pool=SimpleNamespace(submit=turns.append),
        poller=SimpleNamespace(park=parked.append),
        watch=lambda multiplexer: None,
        unwatch=lambda multiplexer: None,
    )
    multiplexer: Any = Multiplexer(core)

    def close_and_let_another_one_in() -> bool:
        fd = first.sock.fileno()
        first.sock.close()
        os.dup2(second.sock.fileno(), fd)
        second.sock.close()
        second.sock = socket.socket(fileno=fd)
        multiplexer.add(second)
        return False

    first = Connection(close_and_let_another_one_in)
    second = Connection(lambda: bool(second.sock.recv(100)))
    multiplexer.add(first)

    turns[0].run()

    assert parked == [second]
    first.close()
    second.close()
