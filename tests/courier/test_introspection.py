"""Health, draining, incarnations; and what a caller is told while it waits long."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from launchpad import courier
from launchpad.courier import call_deadlock, log
from launchpad.courier.client import watchdog
from tests.courier.conftest import in_background


@pytest.mark.every_transport
def test_a_server_says_how_it_is(serve, connect, address) -> None:
    server = serve(address, m=lambda: 1)
    client = connect(address)

    assert courier.health(client) == server.health == "serving"
    server.set_is_healthy(False)
    assert courier.health(client) == server.health == "not serving"
    assert client.m() == 1


def test_dir_of_a_client_lists_what_the_server_serves(serve, connect, address) -> None:
    client = connect(address, wait_for_ready=False)
    assert "put" not in dir(client)

    serve(address, get=lambda: 1, put=lambda: None)
    with pytest.raises(courier.MethodNotFound, match="Did you mean put"):
        client.putt()

    assert {"get", "put", "futures", "with_options"} <= set(dir(client))
    assert "putt" not in dir(client)


@pytest.mark.every_transport
def test_a_draining_server_ends_its_calls_and_takes_no_more(serve, connect, address, gate) -> None:
    server = serve(address, block=lambda: gate.wait(10), m=lambda: 1)
    running = connect(address).futures.block()
    assert gate.begun.wait(10)
    client = connect(address, wait_for_ready=False)

    server.drain()

    assert courier.health(client) == "draining"
    with pytest.raises(courier.NotSent):
        client.m()
    gate.set()
    assert running.result(10) is True


def test_a_call_of_a_draining_server_waits_for_the_next_one(serve, connect, socket_address) -> None:
    server = serve(socket_address, m=lambda: "old")
    client = connect(socket_address)
    assert client.m() == "old"
    server.drain()

    called = in_background(client.m)
    server.stop()
    serve(socket_address, m=lambda: "new")

    assert called.result(10) == "new"


def test_on_restart_runs_before_the_call_that_finds_it(serve, connect, unix_address) -> None:
    table: dict[str, int] = {}
    server = serve(unix_address, get=table.__getitem__, put=table.__setitem__)
    client = connect(unix_address)
    restarts: list[str] = []

    def restore() -> None:
        restarts.append(courier.incarnation(client))
        client.put("a", 1)

    courier.on_restart(client, restore)
    first = courier.incarnation(client)
    client.put("a", 1)
    assert restarts == []

    server.stop()
    fresh: dict[str, int] = {}
    serve(unix_address, get=fresh.__getitem__, put=fresh.__setitem__)

    assert client.get("a") == 1
    assert restarts == [courier.incarnation(client)]
    assert first != restarts[0]


def test_callers_hear_of_a_stopped_server(spawn_server, connect, unix_address, monkeypatch) -> None:
    monkeypatch.setattr(watchdog, "STOPPED_AFTER_S", 0.0)
    process = spawn_server(unix_address)
    client = connect(unix_address)
    client.echo(1)
    said = threading.Event()
    texts: list[str] = []
    monkeypatch.setattr(log, "warning", lambda text: (texts.append(text), said.set()))

    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # the signal takes its time
    called = in_background(client.echo, 2)
    assert said.wait(10)
    os.kill(process.pid, signal.SIGCONT)

    assert called.result(10) == 2
    assert f"its process {process.pid} is stopped" in texts[0]
    assert "'echo'" in texts[0]


HOG = """{begin}
import ctypes
server = courier.Server("hog", address={address!r})
server.bind("hog", lambda: ctypes.PyDLL(None).usleep(2_500_000))
server.start()
print("up", flush=True)
server.join()
"""


def test_a_method_that_holds_the_gil_is_not_taken_for_a_stopped_process(
    connect, unix_address, spawn_server, monkeypatch
) -> None:
    monkeypatch.setattr(watchdog, "STOPPED_AFTER_S", 0.0)
    texts: list[str] = []
    monkeypatch.setattr(log, "warning", texts.append)
    spawn_server(unix_address, HOG)

    assert connect(unix_address).hog() == 0
    assert texts == []


by_grpc = pytest.param("grpc:127.0.0.1:0", marks=pytest.mark.leaks_by_nature)  # descriptors


@pytest.mark.parametrize("place", ["unix:{folder}/{name}", "inproc:{folder}/{name}", by_grpc])
def test_f30_a_cycle_of_waiting_calls_is_named(
    serve, connect, short_directory, monkeypatch, gate, place: str
) -> None:
    """A.f → B.g → C.h → A.f."""
    monkeypatch.setattr(watchdog, "DEADLOCK_AFTER_S", 0.5)
    monkeypatch.setattr(call_deadlock, "_reported", set())
    said = threading.Event()
    texts: list[str] = []
    monkeypatch.setattr(log, "warning", lambda text: (texts.append(text), said.set()))
    at: dict[str, str] = {}
    depth: list[int] = []

    def f() -> None:
        depth.append(1)
        if len(depth) > 1:
            gate.wait(20)  # as if a lock were held, or all threads were taken
        else:
            connect(at["B"]).g()

    methods = {"f": f, "g": lambda: connect(at["C"]).h(), "h": lambda: connect(at["A"]).f()}
    for name, method in zip("ABC", methods, strict=True):
        address = place.format(folder=short_directory, name=name)
        at[name] = serve(address, name=name, **{method: methods[method]}).address
    called = in_background(connect(at["A"]).f)
    assert said.wait(15)
    gate.set()

    assert called.result(10) is None
    assert "wait for each other" in texts[0]
    assert any(
        cycle in texts[0]
        for cycle in ("A.f → B.g → C.h → A.f", "B.g → C.h → A.f → B.g", "C.h → A.f → B.g → C.h")
    )


def test_a_chain_of_calls_is_no_cycle(serve, connect, short_directory, monkeypatch) -> None:
    monkeypatch.setattr(watchdog, "DEADLOCK_AFTER_S", 0.0)
    texts: list[str] = []
    monkeypatch.setattr(log, "warning", texts.append)
    detect = call_deadlock.detect
    has_looked = threading.Event()

    def look(waits) -> bool:
        is_over = detect(waits)
        if waits:  # from here, and not only where the test itself waits
            has_looked.set()
        return is_over

    monkeypatch.setattr(call_deadlock, "detect", look)
    at = {name: f"unix:{short_directory}/{name}" for name in "AB"}
    serve(at["B"], name="B", g=lambda: has_looked.wait(20))
    serve(at["A"], name="A", f=lambda: connect(at["B"]).g())

    assert connect(at["A"]).f() is True
    assert texts == []
