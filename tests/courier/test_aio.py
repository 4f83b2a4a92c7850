"""`await client.aio.m()`."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from launchpad import courier


def test_a_call_is_awaited(serve, connect, address) -> None:
    serve(address, add=lambda a, b=0: a + b)
    client = connect(address)

    async def main() -> int:
        return await client.aio.add(1, b=2)

    assert asyncio.run(main()) == 3


@pytest.mark.every_transport
def test_many_calls_are_under_way_at_once(serve, connect, address) -> None:
    barrier = threading.Barrier(20)
    serve(address, meet=lambda: barrier.wait(10))
    client = connect(address)

    async def main() -> list[int]:
        return await asyncio.gather(*(client.aio.meet() for _ in range(20)))

    assert sorted(asyncio.run(main())) == list(range(20))


def test_an_exception_arrives_as_its_own_type(serve, connect, address) -> None:
    def fail() -> None:
        raise LookupError("not there")

    serve(address, fail=fail)
    client = connect(address)

    async def main() -> None:
        await client.aio.fail()

    with pytest.raises(LookupError, match="not there"):
        asyncio.run(main())


def test_cancelling_the_task_cancels_the_coroutine_that_serves_it(
    serve, connect, unix_address
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    serve(unix_address, wait=wait)
    client = connect(unix_address)

    async def call() -> None:
        await client.aio.wait()

    async def main() -> None:
        task = asyncio.create_task(call())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert cancelled.wait(10)


def test_the_server_itself_can_be_called(serve, connect, address) -> None:
    serve(address, __call__=lambda x: x * 2)
    client = connect(address)

    async def main() -> int:
        return await client.aio(21)

    assert asyncio.run(main()) == 42


def test_private_names_are_refused(connect, address) -> None:
    with pytest.raises(AttributeError, match="underscore"):
        connect(address).aio._x()


def test_timeouts_of_the_options_hold(serve, connect, address, gate) -> None:
    serve(address, block=lambda: gate.wait(10))
    client = connect(address).with_options(timeout_s=0.05)

    async def main() -> None:
        await client.aio.block()

    with pytest.raises(courier.DeadlineExceeded):
        asyncio.run(main())


def test_answers_that_have_been_decrypted_already_do_not_wait_for_more_bytes(
    serve, connect, tls_address
) -> None:
    serve(tls_address, zeros=bytes)
    client = connect(tls_address)

    async def main() -> list[int]:
        await client.aio.zeros(1)
        for n in 6000, 9000, 10_500:  # together more than is read at once, and less than twice that
            calls = [client.aio.zeros(n + i) for i in range(3)]
            await asyncio.wait_for(asyncio.gather(*calls), 2)
        return [len(each) for each in await asyncio.gather(*(client.aio.zeros(i) for i in (1, 2)))]

    assert asyncio.run(main()) == [1, 2]


def test_an_event_of_an_earlier_connection_does_not_end_the_next_one(
    serve, connect, unix_address, gate
) -> None:
    begun = threading.Semaphore(0)

    def wait() -> bool:
        begun.release()
        return gate.wait(10)

    server = serve(unix_address, wait=wait)
    client = connect(unix_address, idempotent=["wait"])

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(_await(client.aio.wait()))
        await loop.run_in_executor(None, begun.acquire)
        (pipeline,) = client._channel.connections._loop_pipelines.values()
        late_event = partial(*_reading(loop, pipeline.reader._watched))
        await loop.run_in_executor(None, server.stop, 0.0)
        serve(unix_address, wait=wait)
        await loop.run_in_executor(None, begun.acquire)
        late_event()
        assert not pipeline.reader._has_ended
        gate.set()
        return await call

    assert asyncio.run(main())


async def _await(call: Any) -> Any:
    return await call


def _reading(loop: Any, fd: int) -> tuple[Any, ...]:
    """What the loop calls when it can be read."""
    handle, _ = loop._selector.get_key(fd).data
    return handle._callback, *handle._args
