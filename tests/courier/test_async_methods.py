"""Coroutine methods: they run on one event loop, and no thread waits for them."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError

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


def test_futures_of_coroutines_run_side_by_side_on_one_thread(client_of) -> None:
    threads: set[int] = set()
    arrived: list[asyncio.Event] = []

    async def meet(n: int) -> int:
        threads.add(threading.get_ident())
        arrived.append(asyncio.Event())
        if len(arrived) == n:
            for event in arrived:
                event.set()
        await arrived[-1].wait()
        return len(arrived)

    client = client_of(size=2, meet=meet)

    futures = [client.futures.meet(100) for _ in range(100)]

    assert {future.result(10) for future in futures} == {100}
    assert len(threads) == 1


def test_many_clients_may_wait_for_coroutines_without_a_thread_each(
    serve, connect, address
) -> None:
    opened: list[asyncio.Event] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def wait() -> str:
        loops.append(asyncio.get_running_loop())
        opened.append(asyncio.Event())
        await opened[-1].wait()
        return "done"

    serve(address, size=4, wait=wait)
    results = [in_background(connect(address).wait) for _ in range(40)]
    until(lambda: len(opened) == 40)
    servers = [t for t in threading.enumerate() if t.name.startswith("server-")]
    for event in opened:
        loops[0].call_soon_threadsafe(event.set)

    assert [result.result(10) for result in results] == ["done"] * 40
    assert len(servers) < 30


def test_sound_15_a_coroutine_whose_caller_was_killed_leaves_the_next_item_in_the_queue(
    serve, connect, unix_address, python
) -> None:
    begun, ended = threading.Event(), threading.Event()
    items: asyncio.Queue[str] = asyncio.Queue()

    async def get() -> str:
        begun.set()
        try:
            return await items.get()
        finally:
            ended.set()

    async def put(item: str) -> None:
        await items.put(item)

    serve(unix_address, get=get, put=put)

    source = f"from launchpad import courier; courier.Client({unix_address!r}).get()"
    with python(source) as process:
        assert begun.wait(10)
        process.kill()
        assert ended.wait(10)
    client = connect(unix_address)
    client.put("the first")

    assert client.get() == "the first"


def test_a_stop_cancels_coroutines_after_their_grace(serve, connect, address) -> None:
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    server = serve(address, wait=wait)
    future = connect(address).futures.wait()
    assert begun.wait(10)

    server.stop(0.05)

    with pytest.raises((courier.CourierError, CancelledError)):
        future.result(10)


def test_a_coroutine_that_has_hardly_begun_when_the_stop_comes_has_its_grace(
    serve, connect, address
) -> None:
    begun, promised, release = threading.Event(), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def wait() -> str:
        loops.append(asyncio.get_running_loop())
        begun.set()
        await release.wait()
        return "in time"

    server = serve(address, wait=wait)
    core = server._core
    send_when_done = core.send_when_done

    def answer_late(*args: object) -> None:
        until(lambda: core.pool._is_stopping)
        send_when_done(*args)
        promised.set()

    core.send_when_done = answer_late
    answer = in_background(connect(address).wait)
    assert begun.wait(10)

    stopped = in_background(server.stop, 10)
    assert promised.wait(10)
    loops[0].call_soon_threadsafe(release.set)

    assert answer.result(10) == "in time"
    stopped.result(10)


LEAVES: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("leave", LEAVES)
def test_sound_12_what_would_end_a_process_is_a_failure_of_one_call(client_of, leave) -> None:
    entered = threading.Event()
    goes_on: list[asyncio.Event] = []

    async def raise_it() -> None:
        goes_on[0].set()
        raise leave

    async def wait() -> str:
        goes_on.append(asyncio.Event())
        entered.set()
        await goes_on[0].wait()
        await asyncio.sleep(0)
        return "done"

    client = client_of(raise_it=raise_it, wait=wait, add=add, call_timeout=60)
    waiting = client.futures.wait()
    assert entered.wait(60)

    with pytest.raises(courier.RemoteError) as caught:
        client.raise_it()

    assert caught.value.type_name == leave.__name__
    assert waiting.result(60) == "done"
    assert client.add(1, 2) == 3


def test_sound_12_a_task_of_a_method_does_not_end_the_loop_either(client_of) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def begin() -> str:
        task = asyncio.ensure_future(leave())
        await asyncio.wait([task])
        assert isinstance(task.exception(), SystemExit)
        return "begun"

    client = client_of(begin=begin, add=add)

    assert client.begin() == "begun"
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


def test_sound_12_leaving_while_a_stream_is_closed_is_shown_and_ends_nothing(
    client_of, monkeypatch
) -> None:
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


def test_sound_04_a_loop_that_is_closed_settles_what_takes_longer_to_be_cancelled() -> None:
    begun = threading.Event()

    async def lingers() -> None:
        try:
            begun.set()
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1000)

    loop = EventLoop("closed")
    promise = loop.spawn(lingers())
    assert begun.wait(DEADLINE_S)

    loop.close()

    assert promise.wait(DEADLINE_S)
    with pytest.raises(CancelledError):
        promise.result()


def test_sound_04_tasks_that_coroutines_have_made_are_cancelled_with_their_loop() -> None:
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

    loop = EventLoop("closed")
    promise = loop.spawn(begins())
    assert promise.wait(DEADLINE_S)

    loop.close()

    assert ended == ["cleaned up"]
