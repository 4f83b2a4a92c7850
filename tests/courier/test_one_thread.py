"""A server whose calls run one at a time, all in one thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier import call_stack
from launchpad.courier.errors import DeadlineExceeded
from launchpad.courier.server.one_thread import OneThread
from launchpad.courier.server.one_thread_pool import STALL_S
from tests.courier.conftest import DEADLINE_S, in_background
from tests.waiting import until


@pytest.fixture
def one_thread() -> Iterator[OneThread]:
    """Is run by a thread of its own."""
    one_thread = OneThread()
    thread = threading.Thread(target=one_thread.run)
    thread.start()
    yield one_thread
    one_thread.end()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


class Gate:
    """A method that is in a call until it is opened."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self.is_open = threading.Event()

    def enter(self) -> str:
        self.is_entered.set()
        assert self.is_open.wait(DEADLINE_S)
        return "done"


@pytest.mark.every_transport
def test_calls_of_many_clients_and_kinds_run_one_at_a_time_in_one_thread(
    serve, connect, address, one_thread
) -> None:
    threads: set[int] = set()
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        inside.append(number)
        most.append(len(inside))
        time.sleep(0.0005)
        inside.remove(number)
        return number

    serve(address, one_thread=one_thread, work=work)
    clients = [connect(address) for _ in range(10)]
    blocking = [in_background(client.work, number) for number, client in enumerate(clients)]
    futures = [client.futures.work(n) for client in clients for n in range(10, 30)]

    assert [each.result(DEADLINE_S) for each in blocking] == list(range(10))
    assert [each.result(DEADLINE_S) for each in futures] == list(range(10, 30)) * 10
    assert set(most) == {1}
    assert len(threads) == 1


def test_what_a_call_returns_is_not_changed_by_the_next_one(
    serve, connect, unix_address, one_thread
) -> None:
    array = np.zeros(20_000)

    def fill(number: int) -> Any:
        array[:] = number
        return {"array": array}

    serve(unix_address, one_thread=one_thread, fill=fill)
    client = connect(unix_address)
    futures = [client.futures.fill(number) for number in range(200)]

    for number, future in enumerate(futures):
        assert set(future.result(DEADLINE_S)["array"]) == {number}


def test_each_step_of_a_stream_runs_there_too(serve, connect, unix_address, one_thread) -> None:
    threads: set[int] = set()

    def count(n: int) -> Iterator[int]:
        for number in range(n):
            threads.add(threading.get_ident())
            yield number

    def total(numbers: Iterator[int]) -> int:
        threads.add(threading.get_ident())
        return sum(numbers)

    serve(unix_address, one_thread=one_thread, count=count, total=total)
    client = connect(unix_address)

    assert list(client.count(100)) == list(range(100))
    assert client.total(iter(range(10))) == 45
    assert threads == {one_thread.thread}


def test_a_call_of_priority_is_the_next_one(serve, connect, unix_address, one_thread) -> None:
    gate, order = Gate(), list[str]()
    urgent: Callable[[str], None] = courier.priority(lambda name: order.append(name))
    serve(unix_address, one_thread=one_thread, enter=gate.enter, note=order.append, urgent=urgent)
    client = connect(unix_address)
    entered = client.futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)
    others = [client.futures.note("first"), client.futures.note("second")]
    until(lambda: len(one_thread._waiting) == 2)
    others.append(client.futures.urgent("urgent"))
    until(lambda: len(one_thread._urgent) == 1)
    gate.is_open.set()

    for future in (entered, *others):
        future.result(DEADLINE_S)
    assert order == ["urgent", "first", "second"]


def test_a_call_that_waits_for_its_turn_longer_than_its_caller_does_not_run(
    serve, connect, unix_address, one_thread
) -> None:
    gate, order = Gate(), list[str]()
    serve(unix_address, one_thread=one_thread, enter=gate.enter, note=order.append)
    client = connect(unix_address)
    entered = client.futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)

    with pytest.raises(DeadlineExceeded):
        connect(unix_address, call_timeout=0.05).note("late")
    cancelled = client.futures.note("cancelled")
    until(lambda: len(one_thread._waiting) == 2)
    assert cancelled.cancel()
    until(lambda: one_thread._waiting[1].is_done)
    gate.is_open.set()

    assert entered.result(DEADLINE_S) == "done"
    client.note("last")
    assert order == ["last"]


def test_errors_and_exits_of_a_call_are_its_callers(
    serve, connect, unix_address, one_thread
) -> None:
    def leave() -> None:
        raise SystemExit(3)

    def cancel() -> None:
        raise asyncio.CancelledError

    methods = {"leave": leave, "cancel": cancel, "divide": lambda a, b: a / b}
    serve(unix_address, one_thread=one_thread, **methods)
    client = connect(unix_address)

    with pytest.raises(ZeroDivisionError):
        client.divide(1, 0)
    with pytest.raises(Exception, match="SystemExit"):
        client.leave()
    with pytest.raises(BaseException, match="CancelledError"):
        client.cancel()
    assert client.divide(4, 2) == 2


def test_a_coroutine_is_refused_with_what_to_do(serve, connect, unix_address, one_thread) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    serve(unix_address, one_thread=one_thread, add=add)

    with pytest.raises(TypeError, match="leave out one_at_a_time=True"):
        connect(unix_address).add(1, 2)


def test_calls_that_have_not_begun_when_it_ends_are_known_not_to_have_run(
    serve, connect, unix_address, one_thread
) -> None:
    gate, order = Gate(), list[str]()
    server = serve(unix_address, one_thread=one_thread, enter=gate.enter, note=order.append)
    client = connect(unix_address, wait_for_ready=False)
    entered = client.futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)
    waits = client.futures.note("waits")
    until(lambda: one_thread._waiting)

    one_thread.end()
    stopped = in_background(server.stop, DEADLINE_S)
    with pytest.raises(courier.NotSent):
        waits.result(DEADLINE_S)
    gate.is_open.set()

    assert entered.result(DEADLINE_S) == "done"
    stopped.result(DEADLINE_S)
    assert order == []


def test_while_a_call_hangs_clients_connect_and_ask_for_the_servers_health(
    serve, connect, unix_address, one_thread
) -> None:
    gate, order = Gate(), list[int]()
    serve(unix_address, one_thread=one_thread, enter=gate.enter, note=order.append)
    entered = connect(unix_address).futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)

    clients = [connect(unix_address) for _ in range(5)]
    assert [courier.health(client) for client in clients] == ["serving"] * 5
    noted = []
    for number, client in enumerate(clients):
        noted.append(in_background(client.note, number))
        until(lambda n=number: len(one_thread._waiting) == n + 1)
    assert not order
    gate.is_open.set()

    assert entered.result(DEADLINE_S) == "done"
    for each in noted:
        each.result(DEADLINE_S)
    assert order == [0, 1, 2, 3, 4]


def test_a_stop_does_not_wait_for_a_call_that_hangs_longer_than_its_grace(
    serve, connect, unix_address, one_thread
) -> None:
    gate = Gate()
    server = serve(unix_address, one_thread=one_thread, enter=gate.enter)
    entered = connect(unix_address).futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)

    server.stop(0.1)

    with pytest.raises(courier.OutcomeUnknown):
        entered.result(DEADLINE_S)
    gate.is_open.set()


def test_calls_that_take_long_never_leave_the_next_one_waiting(
    serve, connect, unix_address, one_thread
) -> None:
    serve(unix_address, one_thread=one_thread, work=lambda: time.sleep(2 * STALL_S))
    client = connect(unix_address, call_timeout=DEADLINE_S)

    for _ in range(200):
        client.work()


def test_a_stop_waits_for_the_call_that_runs(serve, connect, unix_address, one_thread) -> None:
    gate = Gate()
    server = serve(unix_address, one_thread=one_thread, enter=gate.enter)
    entered = in_background(connect(unix_address).enter)
    assert gate.is_entered.wait(DEADLINE_S)
    stopped = in_background(server.stop, DEADLINE_S)
    until(lambda: server._core.is_stopping)
    gate.is_open.set()

    assert entered.result(DEADLINE_S) == "done"
    stopped.result(DEADLINE_S)


def test_calls_that_wait_for_their_turn_wait_for_the_call_that_runs(
    serve, connect, unix_address, one_thread
) -> None:
    """So a server asks itself and finds the circle, if the call that runs waits for one of the others."""
    gate = Gate()
    serve(unix_address, one_thread=one_thread, name="table", enter=gate.enter, note=print)
    client = connect(unix_address)
    entered = client.futures.enter()
    assert gate.is_entered.wait(DEADLINE_S)
    noted = client.futures.note()
    until(lambda: one_thread._waiting)

    edge = (unix_address, "note"), (unix_address, "enter"), "table", "table"
    assert edge in call_stack.edges()

    gate.is_open.set()
    entered.result(DEADLINE_S)
    noted.result(DEADLINE_S)
    assert edge not in call_stack.edges()
