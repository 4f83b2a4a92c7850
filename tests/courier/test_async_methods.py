"""Coroutine methods: they run on one event loop, and no thread waits for them."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError

import pytest

from launchpad import courier
from launchpad.courier.server.event_loop import EventLoop
from tests.courier.conftest import DEADLINE_S
from tests.waiting import until


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("not there")


@pytest.mark.every_transport
def test_a_coroutine_method_is_called_like_any_other(serve, connect, address) -> None:
    serve(address, add=add)

    assert connect(address).add(1, b=2) == 3


def test_what_a_coroutine_raises_arrives_as_its_own_type(serve, connect, address) -> None:
    serve(address, fail=fail)

    with pytest.raises(LookupError, match="not there"):
        connect(address).fail()


def test_futures_of_coroutines_run_side_by_side_on_one_thread(serve, connect, address) -> None:
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

    serve(address, size=2, meet=meet)
    client = connect(address)

    futures = [client.futures.meet(100) for _ in range(100)]

    assert {future.result(10) for future in futures} == {100}
    assert len(threads) == 1


def test_many_clients_may_wait_for_coroutines_without_a_thread_each(serve, connect, address):
    opened: list[asyncio.Event] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def wait() -> str:
        loops.append(asyncio.get_running_loop())
        opened.append(asyncio.Event())
        await opened[-1].wait()
        return "done"

    def release() -> int:
        for event in opened:
            loops[0].call_soon_threadsafe(event.set)
        return len(opened)

    def count() -> int:
        return len(opened)

    serve(address, size=4, wait=wait, release=release, count=count)
    clients = [connect(address) for _ in range(40)]
    results: list[str] = []
    callers = [
        threading.Thread(target=lambda c=client: results.append(c.wait())) for client in clients
    ]
    for caller in callers:
        caller.start()
    other = connect(address)
    until(lambda: other.count() >= 40)
    servers = [t for t in threading.enumerate() if t.name.startswith("server-")]
    assert other.release() == 40
    for caller in callers:
        caller.join(10)

    assert results == ["done"] * 40
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


@pytest.mark.every_transport
def test_a_stop_gives_coroutines_their_grace_and_then_cancels_them(serve, connect, address):
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


def test_a_coroutine_that_has_hardly_begun_when_the_stop_comes_has_its_grace_too(
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
    house, promise_one = server._core, server._core.send_when_done

    def answer_late(*args: object) -> None:
        while house.pool._is_stopping is False:
            time.sleep(0.001)
        promise_one(*args)
        promised.set()

    house.send_when_done = answer_late
    client = connect(address)
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(client.wait()))
    caller.start()
    assert begun.wait(10)

    stopper = threading.Thread(target=server.stop, args=(10,))
    stopper.start()
    assert promised.wait(10)
    loops[0].call_soon_threadsafe(release.set)
    stopper.join(10)
    caller.join(10)

    assert answers == ["in time"]


def test_a_coroutine_that_is_done_within_the_grace_is_answered(serve, connect, address) -> None:
    begun, release = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def wait() -> str:
        loops.append(asyncio.get_running_loop())
        begun.set()
        await release.wait()
        return "in time"

    server = serve(address, wait=wait)
    client = connect(address)
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(client.wait()))
    caller.start()
    assert begun.wait(10)

    stopper = threading.Thread(target=server.stop, args=(10,))
    stopper.start()
    loops[0].call_soon_threadsafe(release.set)
    stopper.join(10)
    caller.join(10)

    assert answers == ["in time"]


LEAVES: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.every_transport
@pytest.mark.parametrize("leave", LEAVES)
def test_sound_12_what_would_end_a_process_is_a_failure_of_one_call(
    serve, connect, address, leave
) -> None:
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

    serve(address, raise_it=raise_it, wait=wait, add=add)
    client = connect(address, call_timeout=60)
    waiting = client.futures.wait()
    assert entered.wait(60)

    with pytest.raises(courier.RemoteError) as caught:
        client.raise_it()

    assert caught.value.type_name == leave.__name__
    assert waiting.result(60) == "done"
    assert client.add(1, 2) == 3


def test_sound_12_a_task_of_a_method_does_not_end_the_loop_either(
    serve, connect, unix_address
) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def begin() -> str:
        task = asyncio.ensure_future(leave())
        await asyncio.wait([task])
        assert isinstance(task.exception(), SystemExit)
        return "begun"

    serve(unix_address, begin=begin, add=add)
    client = connect(unix_address, call_timeout=60)

    assert client.begin() == "begun"
    assert client.add(1, 2) == 3


@pytest.mark.parametrize("leave", LEAVES[:2])
def test_sound_12_a_stream_ends_with_it_after_the_items_before(
    serve, connect, unix_address, leave
) -> None:
    async def rows() -> AsyncIterator[int]:
        yield 1
        raise leave

    serve(unix_address, rows=rows, add=add)
    client = connect(unix_address, call_timeout=60)
    found = client.rows()

    assert next(found) == 1
    with pytest.raises(courier.RemoteError, match=leave.__name__):
        next(found)
    assert client.add(1, 2) == 3


def test_sound_12_leaving_while_a_stream_is_closed_is_shown_and_ends_nothing(
    serve, connect, unix_address, monkeypatch
) -> None:
    shown: queue.Queue[threading.ExceptHookArgs] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", shown.put)

    async def rows() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            raise SystemExit(3)

    serve(unix_address, rows=rows, add=add)
    client = connect(unix_address, call_timeout=60)

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
