"""A node's host and the launcher's connection with it, in one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.remote import node_host
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost
from launchpad.launch.backends.remote.parts import Part
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer

DEADLINE_S = 60.0
HERE = HostReady("here", "127.0.0.1")
SPEC = SimpleNamespace(worker=SimpleNamespace(plan=SimpleNamespace(gpus=("0",))))


class Fake:
    """A worker host of which a test says what its methods do."""

    def __init__(self, **methods: Callable[..., Awaitable[Any]]) -> None:
        self.is_closed = False
        for name, method in methods.items():
            setattr(self, name, method)

    async def close(self) -> None:
        self.is_closed = True


async def serving(host: NodeHost, use: Callable[[NodeConnection], Awaitable[Any]]) -> Any:
    """Connect with a host, and return what `use` returns."""
    connection = NodeConnection(NodeReady(HERE))

    async def send(part: Part) -> None:
        connection.on_part(part)

    task = asyncio.create_task(host.serve(connection.parts(), send))
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await use(connection)
    finally:
        connection.end()
        await task


@pytest.fixture
def host() -> NodeHost:
    return NodeHost(HERE, launcher_info.versions(), "")


def test_the_lease_is_renewed_while_buffers_are_copied(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_copying = threading.Event()
    may_go_on = threading.Event()

    def copy_slowly(buffers: list[LargeBuffer]) -> None:
        is_copying.set()
        assert may_go_on.wait(DEADLINE_S)

    monkeypatch.setattr(node_host, "keep_copies", copy_slowly)

    async def use(connection: NodeConnection) -> str:
        opening = connection.call("w-0", "open", SPEC, None, LargeBuffer(bytes(3 << 20)))
        await asyncio.to_thread(is_copying.wait, DEADLINE_S)
        await asyncio.wrap_future(connection.renew())
        assert not opening.done()
        # A worker that is ended while the buffers are copied isn't opened any more.
        await asyncio.wrap_future(connection.call("w-0", "end"))
        may_go_on.set()
        with pytest.raises(LaunchError) as error:
            await asyncio.wrap_future(opening)
        return str(error.value)

    assert asyncio.run(serving(host, use)) == "it was ended before it was ready"


def test_an_answer_that_cannot_be_pickled_fails_only_its_call(host: NodeHost) -> None:
    async def unpicklable() -> Any:
        return lambda: None

    async def use(connection: NodeConnection) -> None:
        host._hosts["w-0"] = Fake(next_update=unpicklable)  # type: ignore[assignment]
        with pytest.raises(LaunchError, match=r"the answer cannot be sent: .*pickle"):
            await asyncio.wrap_future(connection.call("w-0", "next_update"))
        await asyncio.wrap_future(connection.renew())

    asyncio.run(serving(host, use))


def test_only_calls_that_something_waits_for_are_answered(host: NodeHost) -> None:
    executed = []

    async def execute(number: int) -> None:
        executed.append(number)
        if number:
            raise RuntimeError("only the log says so")

    async def main() -> int:
        connection = NodeConnection(NodeReady(HERE))
        host._hosts["w-0"] = Fake(execute_in_order=execute)  # type: ignore[assignment]
        connection.post("w-0", "execute_in_order", 0)
        connection.post("w-0", "execute_in_order", 1)
        # Answers keep their order, and this one is not urgent. So others would come before it.
        last = connection.call("", "close_port")
        n_parts = 0

        async def send(part: Part) -> None:
            nonlocal n_parts
            n_parts += 1
            connection.on_part(part)
            connection.end()

        async with asyncio.timeout(DEADLINE_S):
            await host.serve(connection.parts(), send)
        assert last.result(0) is None
        return n_parts

    assert asyncio.run(main()) == 1
    assert executed == [0, 1]


def test_a_host_whose_answers_are_not_taken_ends(host: NodeHost) -> None:
    async def main() -> None:
        connection = NodeConnection(NodeReady(HERE))
        connection.renew()

        async def send(part: Part) -> None:
            raise ValueError("not this one")

        async with asyncio.timeout(DEADLINE_S):
            await host.serve(connection.parts(), send)

    with pytest.raises(LaunchError, match="does not take answers: ValueError: not this one"):
        asyncio.run(main())


def test_a_host_that_is_ended_while_it_waits_for_the_former_one_never_opens(
    host: NodeHost,
) -> None:
    async def main() -> str:
        is_closing = asyncio.Event()
        may_close = asyncio.Event()

        async def close() -> None:
            is_closing.set()
            await asyncio.wait_for(may_close.wait(), DEADLINE_S)

        async def use(connection: NodeConnection) -> str:
            host._hosts["w-0"] = Fake(close=close)  # type: ignore[assignment]
            opening = connection.call("w-0", "open", SPEC, None)
            await is_closing.wait()
            await asyncio.wrap_future(connection.call("w-0", "end"))
            may_close.set()
            with pytest.raises(LaunchError) as error:
                await asyncio.wrap_future(opening)
            return str(error.value)

        return await serving(host, use)  # type: ignore[no-any-return]

    assert asyncio.run(main()) == "it was ended before it was ready"
    assert not host._hosts
    assert not host._given


def test_a_node_host_that_ends_waits_for_the_former_host_of_a_worker(host: NodeHost) -> None:
    has_closed = []

    async def main() -> None:
        is_closing = asyncio.Event()
        may_close = asyncio.Event()

        async def close() -> None:
            is_closing.set()
            await asyncio.wait_for(may_close.wait(), DEADLINE_S)
            has_closed.append(True)

        async def use(connection: NodeConnection) -> None:
            host._hosts["w-0"] = Fake(close=close)  # type: ignore[assignment]
            connection.post("w-0", "open", SPEC, None)
            await is_closing.wait()
            # The node host ends now, and with it the call that waits for the former host.
            is_closing.clear()
            connection.end()
            await is_closing.wait()
            may_close.set()

        await serving(host, use)

    asyncio.run(main())

    assert has_closed == [True]


def test_all_workers_are_ended_although_one_of_them_cannot_be(host: NodeHost) -> None:
    async def fail() -> None:
        raise OSError("its folder is gone")

    hosts = [Fake(close=fail), Fake()]

    async def use(connection: NodeConnection) -> None:
        host._hosts |= {f"w-{number}": fake for number, fake in enumerate(hosts)}  # type: ignore[misc]
        await asyncio.wrap_future(connection.renew())

    asyncio.run(serving(host, use))

    assert hosts[1].is_closed


def test_a_reason_to_end_does_not_cut_the_closing_short(host: NodeHost) -> None:
    async def close() -> None:
        host.end("the executor has ended")
        # `end` has put its call into the loop's queue before these.
        for _ in range(3):
            await asyncio.sleep(0)
        worker_host.is_closed = True

    worker_host: Any = Fake()
    worker_host.close = close
    host._hosts["worker"] = worker_host

    async def no_parts() -> Any:
        for part in ():
            yield part

    async def send(part: Part) -> None:
        raise AssertionError

    asyncio.run(asyncio.wait_for(host.serve(no_parts(), send), DEADLINE_S))

    assert worker_host.is_closed


def test_a_host_that_is_told_to_end_says_why(host: NodeHost) -> None:
    async def parts() -> Any:
        host.end("the executor has ended")
        await asyncio.Event().wait()
        yield

    async def send(part: Part) -> None:
        raise AssertionError

    with pytest.raises(LaunchError, match="the executor has ended"):
        asyncio.run(asyncio.wait_for(host.serve(parts(), send), DEADLINE_S))
