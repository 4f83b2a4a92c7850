"""F26–F29: a server dies and is started again, as its callers see it; how fast: benchmarks/recovery.py."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.testing import KillWorkers
from tests.faults.backends import both, everywhere

DEADLINE_S = 60
FOREVER = lp.RestartPolicy(max_restarts=10**6, backoff=0)


class Server:
    """Forgets everything when it dies."""

    def __init__(self) -> None:
        self._count = 0
        self._hanging = 0

    def add(self) -> int:
        self._count += 1
        return self._count

    def n_hanging(self) -> int:
        return self._hanging

    async def hang(self) -> None:
        self._hanging += 1
        await asyncio.sleep(3600)

    def attempt(self) -> int:
        return lp.current().attempt


def program_of(restart: lp.RestartPolicy | None) -> lp.Program:
    program = lp.Program("restarts")
    with program.group("server", restart=restart):
        program.add_node(lp.CourierNode(Server))
    return program


def kill(running: lp.Running) -> None:
    """Kills the server; returns when it has been noticed."""
    (before,) = running.status()
    with KillWorkers(running, ["server"], at_most=1):
        deadline = time.monotonic() + DEADLINE_S
        while running.status()[0].attempt == before.attempt and not running.is_done:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)


@pytest.fixture
def running(launch_type: str) -> Iterator[lp.Running]:
    with lp.launch(program_of(FOREVER), launch_type) as running:
        yield running


@pytest.fixture
def client(running: lp.Running) -> Iterator[Any]:
    with running.client("server") as client:
        yield client


def hang(client: Any, calls: int) -> list[Future[None]]:
    futures: list[Future[None]] = [client.futures.hang() for _ in range(calls)]
    while client.n_hanging() < calls:
        threading.Event().wait(0.002)
    return futures


@everywhere
def test_f26_all_calls_in_flight_resolve_as_unknown_when_the_server_is_killed(
    running: lp.Running, client: Any
) -> None:
    futures = hang(client, 1000)

    kill(running)
    done, left = wait(futures, DEADLINE_S)

    assert not left
    assert {type(future.exception()) for future in done} == {courier.OutcomeUnknown}
    assert "server-0" in str(futures[0].exception())
    assert client.attempt() == 2


@both
def test_f26_calls_of_a_server_that_has_failed_for_good_end_with_its_name(launch_type: str) -> None:
    running = lp.launch(program_of(None), launch_type)
    with running.client("server") as client:
        futures = hang(client, 100)

        kill(running)
        errors = [future.exception(DEADLINE_S) for future in futures]
        with pytest.raises(lp.ProgramFailed) as failed:
            running.wait(DEADLINE_S)
        with pytest.raises(courier.WorkerFailed, match="server-0 failed"):
            client.attempt()

    assert {type(error) for error in errors} <= {courier.OutcomeUnknown, courier.WorkerFailed}
    assert (failed.value.worker, failed.value.phase) == ("server-0", "run")
    assert "killed by" in failed.value.outcome.cause


@both
def test_f26_idempotent_calls_in_flight_are_answered_by_the_next_attempt(
    running: lp.Running, client: Any
) -> None:
    again = client.with_options(idempotent=True)
    future = again.futures.hang()
    while not client.n_hanging():
        threading.Event().wait(0.002)

    kill(running)
    while not client.n_hanging():  # of the next attempt, which was called again
        threading.Event().wait(0.002)

    assert client.attempt() == 2
    assert not future.done()
    future.cancel()


@everywhere
def test_f27_after_a_restart_at_the_same_address_the_next_call_is_answered(
    running: lp.Running, client: Any
) -> None:
    places = dict(running.plan.endpoints)

    for attempt in range(1, 6):
        assert client.attempt() == attempt
        kill(running)

    assert client.attempt() == 6
    assert client.futures.attempt().result(DEADLINE_S) == 6
    assert running.plan.endpoints == places


def test_f28_after_a_restart_at_another_address_the_next_call_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On one host a worker keeps its address, so this is a name that leads elsewhere, as in a cluster."""
    where, ask = ["127.0.0.1"], socket.getaddrinfo

    def resolve(host: str, *args: Any, **kwargs: Any) -> Any:
        return ask(where[0] if host == "server.test" else host, *args, **kwargs)

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    first = serve("tcp:127.0.0.1:0", "first")
    port = first.address.rpartition(":")[2]
    with courier.Client[Any](f"tcp:server.test:{port}") as client:
        answers = [client.who(), client.futures.who().result(DEADLINE_S)]

        first.stop()
        where[0] = "127.0.0.2"
        second = serve(f"tcp:127.0.0.2:{port}", "second")
        answers += [client.who(), client.futures.who().result(DEADLINE_S)]

    second.stop()
    assert answers == ["first", "first", "second", "second"]


def serve(address: str, name: str) -> courier.Server:
    server = courier.Server(name, address=address)
    server.bind("who", lambda: name)
    server.start()
    return server


@everywhere
def test_f29_a_client_learns_that_the_state_of_its_server_was_lost(
    running: lp.Running, client: Any
) -> None:
    told = threading.Event()
    assert [client.add(), client.add()] == [1, 2]
    before = courier.incarnation(client)
    courier.on_restart(client, told.set)

    kill(running)

    assert not told.is_set()
    assert client.add() == 1
    assert told.is_set()
    assert courier.incarnation(client) != before
