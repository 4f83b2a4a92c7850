"""Coroutine methods: they run on one event loop, and no thread waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError

import pytest

from launchpad import courier
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


def test_a_coroutine_is_cancelled_when_its_caller_is_gone(serve, unix_address, python) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    serve(unix_address, wait=wait)

    source = f"from launchpad import courier; courier.Client({unix_address!r}).wait()"
    with python(source) as process:
        assert begun.wait(10)
        process.kill()

        assert ended.wait(10)


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
