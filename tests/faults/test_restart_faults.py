"""F26, F27, F29: a server dies and is started again, as its callers see it. How fast: make bench."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.testing import KillWorkers
from tests.faults.backends import everywhere
from tests.waiting import until

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
        until(lambda: running.is_done or running.status()[0].attempt > before.attempt)


def hang(client: Any, calls: int) -> list[Future[None]]:
    futures: list[Future[None]] = [client.futures.hang() for _ in range(calls)]
    until(lambda: client.n_hanging() >= calls)
    return futures


@everywhere
def test_f26_f27_f29_callers_of_a_killed_server_learn_of_it_and_go_on(launch_type: str) -> None:
    told = threading.Event()
    with lp.launch(program_of(FOREVER), launch_type) as running, running.client("server") as client:
        places = dict(running.plan.endpoints)
        assert [client.add(), client.add()] == [1, 2]
        before = courier.incarnation(client)
        courier.on_restart(client, told.set)
        futures = hang(client, 1000)

        kill(running)
        done, left = wait(futures, DEADLINE_S)

        assert not left
        assert {type(future.exception()) for future in done} == {courier.OutcomeUnknown}
        assert "server-0" in str(futures[0].exception())
        assert not told.is_set()
        assert client.add() == 1
        assert told.is_set()
        assert courier.incarnation(client) != before
        assert client.attempt() == 2
        kill(running)
        assert client.attempt() == 3
        assert client.futures.attempt().result(DEADLINE_S) == 3
        assert running.plan.endpoints == places


def test_f26_calls_of_a_server_that_has_failed_for_good_end_with_its_name() -> None:
    running = lp.launch(program_of(None), "test_mp")
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
