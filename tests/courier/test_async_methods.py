"""Coroutine methods: they run on one event loop, and no thread waits for them."""

from __future__ import annotations

import asyncio
import gc
import queue
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.server.event_loop import EventLoop
from tests.courier.conftest import DEADLINE_S, in_background
from tests.waiting import until


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("not there")


@pytest.mark.every_transport
def test_a_coroutine_method_is_called_and_raises_like_any_other(client_of) -> None:
    client = client_of(add=add, fail=fail)

    assert client.add(1, b=2) == 3
    with pytest.raises(LookupError, match="not there"):
        client.fail()


@pytest.mark.every_transport
def test_what_a_coroutine_returns_is_not_changed_by_the_next_one(client_of) -> None:
    array, rows = np.zeros(20_000), [0]

    async def fill(number: int) -> Any:
        array[:] = number
        rows[:] = [number] * 100
        return {"array": array, "rows": rows}

    client = client_of(fill=fill)
    futures = [client.futures.fill(number) for number in range(200)]

    for number, future in enumerate(futures):
        answer = future.result(DEADLINE_S)
        assert set(answer["array"]) == {number}
        assert set(answer["rows"]) == {number}


class AsyncGate:
    """Coroutines wait for it, and any thread opens it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.threads: set[int] = set()

    async def wait(self) -> str:
        self.threads.add(threading.get_ident())
        event = asyncio.Event()
        self.waiting.append((asyncio.get_running_loop(), event))
        await event.wait()
        return "done"

    def open(self) -> None:
        for loop, event in self.waiting:
            loop.call_soon_threadsafe(event.set)


def test_many_clients_may_wait_for_coroutines_on_one_thread(serve, connect, address) -> None:
    gate = AsyncGate()
    serve(address, size=2, wait=gate.wait)
    clients = [connect(address) for _ in range(40)]

    results = [in_background(client.wait) for client in clients]
    results += [clients[0].futures.wait() for _ in range(100)]
    until(lambda: len(gate.waiting) == 140)
    servers = [t for t in threading.enumerate() if t.name.startswith("server-")]
    gate.open()

    assert [result.result(10) for result in results] == ["done"] * 140
    assert len(gate.threads) == 1
    assert len(servers) < 30


def test_sound_15_a_coroutine_whose_caller_is_gone_takes_no_item(
    serve, connect, unix_address
) -> None:
    begun, ended = threading.Event(), threading.Event()
    items: asyncio.Queue[str] = asyncio.Queue()

    async def get() -> str:
        begun.set()
        try:
            return await items.get()
        finally:
            ended.set()

    serve(unix_address, get=get, put=items.put)
    with courier.Client[Any](unix_address) as gone:
        gone.futures.get()
        assert begun.wait(10)
    assert ended.wait(10)

    client = connect(unix_address)
    client.put("the first")

    assert client.get() == "the first"


@pytest.mark.parametrize("kind", ["a future", "with a stream as argument", "cancelled"])
def test_a_coroutine_ends_whose_caller_leaves_just_as_it_begins(
    serve, connect, unix_address, kind: str
) -> None:
    """The thread that has started the coroutine hangs, and another one reads that the caller has left."""
    ended, caller_has_left = threading.Event(), threading.Event()

    async def wait(_: object = None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    server = serve(unix_address, wait=wait)
    loop = server._core.methods.loop
    spawn = loop.spawn

    def spawn_and_hang(*args: Any, **kwargs: Any) -> Any:
        promise = spawn(*args, **kwargs)
        assert caller_has_left.wait(10)
        return promise

    loop.spawn = spawn_and_hang
    client = connect(unix_address)
    if kind == "with a stream as argument":
        in_background(client.wait, iter("abc"))
    else:
        future = client.futures.wait()
    until(lambda: loop._promises)
    (connection,) = server._core.connections

    if kind == "cancelled":
        until(lambda: connection._beside)
        future.cancel()
        until(lambda: any(beside.cancelled_id for beside in tuple(connection._beside)))
    else:
        connection.sock.shutdown(socket.SHUT_RDWR)
        until(lambda: connection._has_ended)
    caller_has_left.set()

    assert ended.wait(10)
    assert connection._has_ended == (kind != "cancelled")


def test_a_coroutine_that_has_hardly_begun_has_its_grace(serve, connect, address) -> None:
    gate, promised = AsyncGate(), threading.Event()
    server = serve(address, wait=gate.wait)
    core = server._core
    send_when_done = core.send_when_done

    def answer_late(*args: object) -> None:
        until(lambda: core.pool._is_stopping)
        send_when_done(*args)
        promised.set()

    core.send_when_done = answer_late
    answer = in_background(connect(address).wait)
    until(lambda: gate.waiting)

    stopped = in_background(server.stop, 10)
    assert promised.wait(10)
    gate.open()

    assert answer.result(10) == "done"
    stopped.result(10)


@pytest.mark.every_transport
def test_a_stop_cancels_coroutines_after_their_grace(serve, connect, address) -> None:
    gate = AsyncGate()
    server = serve(address, wait=gate.wait)
    future = connect(address).futures.wait()
    until(lambda: gate.waiting)

    server.stop(0.05)

    with pytest.raises(
        courier.OutcomeUnknown
    ):  # not CancelledError: its caller has not cancelled it
        future.result(10)


LEAVES: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("leave", LEAVES)
def test_sound_12_what_would_end_a_process_is_a_failure_of_one_call(client_of, leave) -> None:
    gate = AsyncGate()

    async def raise_it() -> None:
        raise leave

    async def raise_it_in_a_task() -> str:
        task = asyncio.ensure_future(raise_it())
        await asyncio.wait([task])
        gate.open()
        return type(task.exception()).__name__

    client = client_of(
        raise_it=raise_it, in_a_task=raise_it_in_a_task, wait=gate.wait, add=add, call_timeout=60
    )
    waiting = client.futures.wait()
    until(lambda: gate.waiting)

    with pytest.raises(courier.RemoteError) as caught:
        client.raise_it()

    assert caught.value.type_name == client.in_a_task() == leave.__name__
    assert waiting.result(60) == "done"
    assert client.add(1, 2) == 3


@pytest.mark.parametrize("leave", LEAVES[:2])
def test_sound_12_a_stream_ends_with_it_after_the_items_before(client_of, leave) -> None:
    async def rows() -> AsyncIterator[int]:
        yield 1
        raise leave

    client = client_of(rows=rows, add=add)
    found = client.rows()

    assert next(found) == 1
    with pytest.raises(courier.RemoteError, match=leave.__name__):
        next(found)
    assert client.add(1, 2) == 3


def test_sound_12_leaving_while_a_stream_is_closed_is_only_shown(client_of, monkeypatch) -> None:
    shown: queue.Queue[threading.ExceptHookArgs] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", shown.put)

    async def rows() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            raise SystemExit(3)

    client = client_of(rows=rows, add=add)

    with client.rows() as found:
        assert next(found) == 1

    assert shown.get(timeout=60).exc_type is SystemExit
    assert client.add(1, 2) == 3


def test_sound_04_a_loop_that_is_closed_cancels_all_tasks_and_settles_what_takes_longer() -> None:
    begun = threading.Event()
    ended: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cleaned up")

    async def begins() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(works())
        await asyncio.sleep(0)
        return task

    async def lingers() -> None:
        try:
            begun.set()
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1000)

    loop = EventLoop("closed")
    made = loop.spawn(begins())
    lingering = loop.spawn(lingers())
    assert made.wait(DEADLINE_S)
    assert begun.wait(DEADLINE_S)

    loop.close()

    assert ended == ["cleaned up"]
    assert lingering.wait(DEADLINE_S)
    with pytest.raises(CancelledError):
        lingering.result()


def test_a_call_that_is_cancelled_before_its_coroutine_has_begun_leaves_no_warning() -> None:
    may_go_on = threading.Event()

    async def holds_the_loop() -> None:
        may_go_on.wait(DEADLINE_S)

    async def never_begins() -> None:
        raise AssertionError

    loop = EventLoop("cancelled")
    loop.spawn(holds_the_loop())
    call = loop.spawn(never_begins(), on_return=lambda value: value)
    call.cancel()
    may_go_on.set()

    assert call.wait(DEADLINE_S)
    loop.close()
    del call
    gc.collect()  # Python would warn of a coroutine that was never awaited, and that fails a test


@pytest.mark.leaks_by_nature  # the coroutine, which is what this is about
def test_a_coroutine_that_catches_all_keeps_no_thread_busy_when_its_loop_has_ended() -> None:
    n_caught = 0
    has_begun = threading.Event()

    async def catches_all() -> None:
        nonlocal n_caught
        has_begun.set()
        while n_caught < 1000:  # else a failure would never end
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                n_caught += 1

    loop = EventLoop("catching")
    call = loop.spawn(catches_all())
    assert has_begun.wait(DEADLINE_S)
    loop.close()
    assert call.wait(DEADLINE_S)
    del call, loop
    gc.collect()

    assert n_caught < 10
