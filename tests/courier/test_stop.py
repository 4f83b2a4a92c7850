"""Starting and stopping a server."""

from __future__ import annotations

import os
import threading
import time

import pytest

from launchpad import courier
from launchpad.courier.server import thread_pool
from tests.courier.conftest import in_background
from tests.waiting import until


def threads_of(name: str) -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(f"{name}-")]


def test_stop_leaves_no_thread_no_socket_and_no_file(serve, connect) -> None:
    server = serve(name="brief", echo=lambda value: value)
    path = server.address.removeprefix("unix:")
    client = connect(server.address)
    client.echo(1)
    client.futures.echo(2).result(10)
    existed = os.path.exists(path)

    server.stop()

    assert existed
    assert threads_of("brief") == []
    assert not os.path.exists(os.path.dirname(path))


@pytest.mark.every_transport
@pytest.mark.timing
def test_stop_is_quick_when_nothing_runs(serve, connect, address) -> None:
    server = serve(address, echo=lambda value: value)
    clients = [connect(address) for _ in range(20)]
    for client in clients:
        client.echo(1)

    began = time.monotonic()
    server.stop(grace_s=10)

    assert time.monotonic() - began < 1


@pytest.mark.every_transport
def test_running_calls_finish_and_are_answered(serve, connect, address, gate) -> None:
    entered = threading.Semaphore(0)
    server = serve(address, m=lambda: entered.release() or (gate.wait() and "finished"))
    client = connect(address)
    running = [client.futures.m(), in_background(client.m)]
    for _ in running:
        assert entered.acquire(timeout=10)

    stop = in_background(server.stop, 10)
    until(lambda: server._core.is_stopping)
    gate.set()

    assert [call.result(10) for call in running] == ["finished"] * 2
    stop.result(10)


@pytest.mark.every_transport
@pytest.mark.timing
def test_stop_returns_at_the_end_of_the_grace_period(serve, connect, address, gate) -> None:
    entered = threading.Event()
    server = serve(address, name="stuck", hang=lambda: entered.set() or gate.wait())
    future = connect(address).futures.hang()
    entered.wait(10)

    began = time.monotonic()
    server.stop(grace_s=0.1)

    assert 0.09 < time.monotonic() - began < 1
    assert isinstance(future.exception(10), courier.OutcomeUnknown)


def test_stop_may_be_called_at_any_time_and_from_several_threads(serve, address) -> None:
    server, idle = serve(address), courier.Server()

    for stop in [in_background(server.stop) for _ in range(5)]:
        stop.result(10)
    server.stop()
    idle.stop()

    assert not server.has_started
    assert idle.join(0)


@pytest.mark.every_transport
@pytest.mark.timing
def test_a_method_may_stop_its_own_server(serve, connect, address) -> None:
    server = serve(address)
    server.bind("stop", server.stop)
    before = server.join(0.01)

    began = time.monotonic()
    connect(address).stop()

    assert not before
    assert server.join(10)
    assert time.monotonic() - began < 0.9


def test_starting_twice_is_a_mistake(serve, address) -> None:
    server = serve(address)

    with pytest.raises(RuntimeError, match="started already"):
        server.start()
    server.stop()
    with pytest.raises(RuntimeError, match="make a new Server"):
        server.start()


def test_threads_are_daemons_named_after_the_server(serve, connect, address) -> None:
    serve(address, name="learner-0", who=lambda: threading.current_thread().name)

    name = connect(address).who()

    assert name.startswith("learner-0-")
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("learner-0-"))


def test_extra_threads_retire(serve, connect, address, gate, monkeypatch) -> None:
    monkeypatch.setattr(thread_pool, "IDLE_S", 0.1)
    serve(address, name="grown", hang=gate.wait)
    futures = [connect(address).futures.hang() for _ in range(30)]
    until(lambda: len(threads_of("grown")) >= 30)

    gate.set()
    for future in futures:
        future.result(10)

    until(lambda: len(threads_of("grown")) <= 4)
