"""Servers that die, stop and come back, with calls in flight and without."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from launchpad import courier
from tests.courier.conftest import in_background, kill
from tests.waiting import until


@pytest.mark.timing
def test_f26_when_a_server_is_killed_all_calls_resolve_at_once(
    spawn_server, connect, socket_address
) -> None:
    process = spawn_server(socket_address)
    client = connect(socket_address)
    blocked = in_background(client.hang)
    until(client.n_hanging)
    futures = [client.futures.hang() for _ in range(1000)]
    until(lambda: client.n_hanging() >= 1001)

    process.kill()
    process.wait(10)
    began = time.monotonic()
    errors = [future.exception(10) for future in [*futures, blocked]]

    assert time.monotonic() - began < 0.5
    assert {type(error) for error in errors} == {courier.OutcomeUnknown}
    assert "connection to victim" in str(errors[0])


def test_the_failure_check_replaces_an_unknown_outcome(spawn_server, connect, unix_address) -> None:
    process = spawn_server(unix_address)
    failures: list[Exception] = []
    client = connect(unix_address, failure_check=lambda: failures[0] if failures else None)
    future = client.futures.hang()
    until(client.n_hanging)

    failures.append(courier.WorkerFailed("victim was killed by SIGKILL"))
    process.kill()

    assert future.exception(10) is failures[0]
    with pytest.raises(courier.WorkerFailed) as caught:
        client.hang()
    assert caught.value is failures[0]


def test_f27_calls_made_while_a_server_is_down_and_after_its_restart_reach_its_successor(
    spawn_server, connect, socket_address
) -> None:
    first = spawn_server(socket_address)
    client = connect(socket_address)
    before = [client.pid(), client.futures.pid().result(10)]

    kill(first, socket_address)
    pipeline = client._channel.connections.get_pipeline()
    until(lambda: pipeline.reader is None or pipeline.reader.address is None)
    waiting = [in_background(client.pid), client.futures.pid()]
    second = spawn_server(socket_address)  # F18: over the dead one's socket
    after = [client.pid(), client.futures.pid().result(10)]

    assert before == [first.pid] * 2
    assert [each.result(10) for each in waiting] == after == [second.pid] * 2


@pytest.mark.every_transport
def test_no_call_is_lost_or_run_twice_over_orderly_restarts(serve, connect, address) -> None:
    """Every call that came back ran once; a stop gives time enough for all that run."""
    ran: list[int] = []
    client = connect(address, call_timeout=20)
    server = serve(address, m=ran.append)
    stop = threading.Event()
    made: list[int] = []

    def work(k: int) -> None:
        for i in range(k, 10**9, 4):
            if stop.is_set():
                return
            client.m(i) if k % 2 else client.futures.m(i).result(20)
            made.append(i)

    workers = [in_background(work, k) for k in range(4)]
    for _ in range(10):
        target = len(made) + 50
        until(lambda target=target: len(made) >= target or any(w.done() for w in workers))
        server.stop(5)
        server = serve(address, m=ran.append)
    stop.set()

    assert [worker.exception(20) for worker in workers] == [None] * 4
    assert sorted(ran) == sorted(made)


def test_a_server_that_breaks_the_handshake_off_is_not_up(serve, connect, unix_address) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(unix_address.removeprefix("unix:"))
        listener.listen()
        accepted = in_background(lambda: listener.accept()[0].close())
        with pytest.raises(courier.NotSent) as caught:
            connect(unix_address, wait_for_ready=False).m()
        accepted.result(10)

    serve(unix_address, m=lambda: "up")

    assert type(caught.value) is courier.NotSent
    assert connect(unix_address).m() == "up"
