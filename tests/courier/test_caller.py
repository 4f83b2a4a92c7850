"""The caller of a method: whether it still waits, however it calls and whatever runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import queue
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.runtime.callers import Caller
from tests.courier.conftest import DEADLINE_S, ClientOf
from tests.waiting import until


class Desk:
    """Its methods wait until their caller is gone, or the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.began: queue.Queue[Caller] = queue.Queue()
        self.ended: queue.Queue[bool] = queue.Queue()  # whether the caller was gone

    def wait(self) -> None:
        caller = lp.caller()
        self.began.put(caller)
        while not caller.is_gone and not self.gate.wait(0.005):
            pass
        self.ended.put(caller.is_gone)

    async def wait_later(self) -> None:
        caller = lp.caller()
        self.began.put(caller)
        while not caller.is_gone and not self.gate.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                assert lp.caller().is_gone
        self.ended.put(caller.is_gone)


@pytest.fixture
def desk(address, serve, gate) -> Desk:
    made = Desk(gate)
    serve(address, wait=made.wait, wait_later=made.wait_later)
    return made


@pytest.mark.parametrize("address", ["unix", "inproc"], indirect=True)
@pytest.mark.parametrize("method", ["wait", "wait_later"])
@pytest.mark.parametrize("why", ["it is cancelled", "its deadline has passed"])
def test_a_caller_that_waits_no_more_for_its_future_is_gone(
    address, desk, connect, gate, method, why
) -> None:
    client = connect(address)
    limited = client.with_options(timeout_s=1.0) if "deadline" in why else client
    other = getattr(client.futures, method)()
    still_waits = desk.began.get(timeout=DEADLINE_S)

    future = getattr(limited.futures, method)()
    gives_up = desk.began.get(timeout=DEADLINE_S)
    if limited is client:
        assert not gives_up.is_gone
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(0)

    assert desk.ended.get(timeout=DEADLINE_S)
    assert not still_waits.is_gone  # which shares its connection
    gate.set()
    other.result(DEADLINE_S)
    assert not desk.ended.get(timeout=DEADLINE_S)


@pytest.mark.parametrize("address", ["unix", "inproc"], indirect=True)
@pytest.mark.parametrize("method", ["wait", "wait_later"])
def test_a_caller_whose_deadline_has_passed_as_it_waited_is_gone(
    address, desk, connect, method
) -> None:
    with contextlib.suppress(courier.DeadlineExceeded):  # the answer may be just in time
        getattr(connect(address, call_timeout=1.0), method)()

    assert desk.ended.get(timeout=DEADLINE_S)


@pytest.mark.parametrize("address", ["unix", "tcp", "tls"], indirect=True)
@pytest.mark.parametrize("method", ["wait", "wait_later"])
def test_a_caller_whose_connection_has_ended_is_gone(address: str, desk: Desk, method: str) -> None:
    with courier.Client[Any](address) as client:
        getattr(client.futures, method)()
        desk.began.get(timeout=DEADLINE_S)

    assert desk.ended.get(timeout=DEADLINE_S)


@pytest.mark.parametrize("address", ["unix", "inproc"], indirect=True)
@pytest.mark.parametrize("method", ["wait", "wait_later"])
def test_a_caller_that_is_kept_keeps_no_call_and_no_connection(address, desk, gate, method) -> None:
    gate.set()
    with courier.Client[Any](address) as client:
        getattr(client, method)()
        getattr(client.futures, method)().result(DEADLINE_S)

    callers = [desk.began.get(timeout=DEADLINE_S) for _ in range(2)]
    assert [caller.is_gone for caller in callers] == [False, False]

    def none_is_left() -> bool:
        gc.collect()
        return all(each._answered and each._answered.connection() is None for each in callers)

    until(none_is_left)


def test_a_caller_that_was_saved_is_the_same_when_loaded(
    client_of: ClientOf, tmp_path: Path
) -> None:
    taken: list[Caller] = []
    client_of(take=lambda: taken.append(lp.caller())).take()

    with lp.testing.worker(state=tmp_path) as me:
        me.save({"taken": taken})
    with lp.testing.worker(state=tmp_path, attempt=2) as me:
        loaded = me.load()["taken"]

    assert loaded == taken
    assert loaded[0].worker.startswith("pid ")
    assert hash(pickle.loads(pickle.dumps(taken[0]))) == hash(taken[0])
