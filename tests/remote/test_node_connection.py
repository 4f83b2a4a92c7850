"""The connection of the launcher with a node: what is sent, and in which order."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote import reachability
from launchpad.launch.backends.remote.node_connection import (
    Answer,
    HostCall,
    NewBuffer,
    NodeConnection,
    NodeGone,
    NodeReady,
    SentBuffer,
)
from launchpad.launch.backends.remote.parts import PartJoiner, cut
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer

READY = NodeReady(HostReady("here", "127.0.0.1"))


async def messages_of(connection: NodeConnection) -> list[Any]:
    connection.end()
    joiner = PartJoiner()
    messages = [joiner.add(part) async for part in connection.parts()]
    return [message for message in messages if message is not None]


def test_a_node_is_sent_a_large_buffer_once_before_the_first_call_with_it() -> None:
    buffer = LargeBuffer(b"buffer")
    other = LargeBuffer(b"other")

    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        for worker, argument in (("w-0", buffer), ("w-1", other), ("w-2", buffer)):
            connection.call(worker, "open", "plan", argument)
        return [
            (message.number, bytes(message.buffer.memory))
            if isinstance(message, NewBuffer)
            else message
            for message in await messages_of(connection)
        ]

    assert asyncio.run(sent()) == [
        (0, b"buffer"),
        HostCall(0, "w-0", "open", ["plan", SentBuffer(0)]),
        (1, b"other"),
        HostCall(1, "w-1", "open", ["plan", SentBuffer(1)]),
        HostCall(2, "w-2", "open", ["plan", SentBuffer(0)]),
    ]


def test_a_renewal_overtakes_the_calls_that_wait() -> None:
    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        connection.call("w-0", "open")
        connection.renew()
        return await messages_of(connection)

    assert asyncio.run(sent()) == [HostCall(1, "", "renew", []), HostCall(0, "w-0", "open", [])]


def test_a_posted_call_keeps_its_place_and_asks_for_no_answer() -> None:
    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        connection.call("w-0", "open")
        connection.post("w-0", "end")
        return await messages_of(connection)

    assert asyncio.run(sent()) == [
        HostCall(0, "w-0", "open", []),
        HostCall(1, "w-0", "end", [], has_answer=False),
    ]


def test_a_call_posted_to_a_node_that_is_gone_is_dropped() -> None:
    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        connection.on_gone(NodeGone("its node process has ended"))
        connection.post("w-0", "end")
        return await messages_of(connection)

    assert asyncio.run(sent()) == []


def test_an_answer_of_several_parts_resolves_its_call() -> None:
    result = bytes(3 << 20)

    async def answered() -> Future[Any]:
        connection = NodeConnection(READY)
        future = connection.call("w-0", "next_update")
        for part in cut(0, Answer(0, result)):
            assert not future.done()
            connection.on_part(part)
        return future

    assert asyncio.run(answered()).result(0) == result


def test_a_call_that_cannot_be_pickled_fails_alone() -> None:
    async def called() -> tuple[Future[Any], list[Any]]:
        connection = NodeConnection(READY)
        future = connection.call("w-0", "open", lambda: None)
        connection.call("w-1", "open")
        return future, await messages_of(connection)

    future, sent = asyncio.run(called())

    assert sent == [HostCall(1, "w-1", "open", [])]
    with pytest.raises(LaunchError, match=r"its host cannot be sent 'open': .*pickle"):
        future.result(0)


def test_a_host_that_is_lost_while_hosts_try_to_reach_each_other_is_named() -> None:
    async def lost() -> NodeConnection:
        connection = NodeConnection(READY)
        connection.on_gone(NodeGone("its node process has ended"))
        return connection

    with pytest.raises(
        LaunchError, match="h1 was lost while the launch began: its node process has ended"
    ):
        reachability.check_all_pairs({"h1": asyncio.run(lost())})
