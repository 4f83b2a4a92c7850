"""`await client.aio.m()`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from functools import partial

import pytest

from tests.courier.conftest import DEADLINE_S, awaited


@pytest.mark.every_transport
def test_many_calls_are_under_way_at_once(client_of) -> None:
    barrier = threading.Barrier(20)
    client = client_of(meet=lambda: barrier.wait(10))

    async def main() -> list[int]:
        return await asyncio.gather(*(client.aio.meet() for _ in range(20)))

    assert sorted(asyncio.run(main())) == list(range(20))


def test_cancelling_the_task_cancels_the_coroutine_that_serves_it(client_of) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    client = client_of(wait=wait)

    async def main() -> None:
        task = asyncio.ensure_future(awaited(client.aio.wait()))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert cancelled.wait(10)


def test_decrypted_answers_do_not_wait_for_more_bytes(serve, connect, tls_address) -> None:
    serve(tls_address, zeros=bytes)
    client = connect(tls_address)

    async def main() -> list[int]:
        await client.aio.zeros(1)
        for n in 6000, 9000, 10_500:  # together more than is read at once, and less than twice that
            calls = [client.aio.zeros(n + i) for i in range(3)]
            await asyncio.wait_for(asyncio.gather(*calls), DEADLINE_S)
        return [len(each) for each in await asyncio.gather(*(client.aio.zeros(i) for i in (1, 2)))]

    assert asyncio.run(main()) == [1, 2]


def test_an_event_of_an_earlier_connection_ends_no_other(
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
        call = asyncio.ensure_future(awaited(client.aio.wait()))
        await loop.run_in_executor(None, begun.acquire)
        (pipeline,) = client._channel.connections._aio_pipelines.values()
        reading, _ = loop._selector.get_key(pipeline.reader._watched).data
        late_event = partial(reading._callback, *reading._args)
        await loop.run_in_executor(None, server.stop, 0.0)
        serve(unix_address, wait=wait)
        await loop.run_in_executor(None, begun.acquire)
        late_event()
        assert not pipeline.reader._has_ended
        gate.set()
        return await call

    assert asyncio.run(main())


def test_a_call_is_a_coroutine_for_tasks_task_groups_and_asyncio_run(client_of) -> None:
    client = client_of(double=lambda n: 2 * n)

    async def main() -> list[int]:
        task = asyncio.create_task(client.aio.double(1))
        async with asyncio.TaskGroup() as group:
            in_group = group.create_task(client.aio.double(2))
        within = await asyncio.wait_for(client.aio.double(3), DEADLINE_S)
        return [await task, in_group.result(), within]

    assert asyncio.iscoroutine(call := client.aio.double(4))
    assert asyncio.run(call) == 8
    assert asyncio.run(main()) == [2, 4, 6]


def test_cancelling_the_task_made_of_a_call_cancels_what_serves_it(client_of) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    client = client_of(wait=wait)

    async def main() -> None:
        task = asyncio.create_task(client.aio.wait())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert cancelled.wait(10)


def test_a_call_runs_once_and_awaited_again_it_raises(client_of) -> None:
    ran = []
    client = client_of(mark=ran.append)

    async def main() -> None:
        call = client.aio.mark(1)
        await call
        with pytest.raises(RuntimeError, match="already awaited"):
            await call

    asyncio.run(main())

    assert ran == [1]


def test_a_call_that_is_never_awaited_does_not_run_and_python_warns_by_its_name(client_of) -> None:
    ran = []
    client = client_of(mark=ran.append)

    with pytest.warns(RuntimeWarning, match=r"'aio\.mark' was never awaited"):
        client.aio.mark(1)

    client.mark(2)
    assert ran == [2]


def test_a_stream_that_is_iterated_over_is_closed_by_aclosing(client_of) -> None:
    closed = threading.Event()

    def count():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    client = client_of(count=count)

    async def main() -> int:
        async with contextlib.aclosing(client.aio.count()) as numbers:
            async for number in numbers:
                if number == 3:
                    break
        return number

    assert asyncio.run(main()) == 3
    assert closed.wait(DEADLINE_S)
