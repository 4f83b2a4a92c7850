"""The connection of the launcher with a node: what is sent, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launchpad.launch.backends.remote import node_connection
from launchpad.launch.backends.remote.node_connection import (
    BufferPart,
    HostCall,
    NodeConnection,
    NodeReady,
    SentBuffer,
)
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.large_buffers import LargeBuffer

READY = NodeReady(HostReady("here", "127.0.0.1"))


def test_a_node_is_sent_a_large_buffer_once_before_the_first_call_with_it() -> None:
    buffer = LargeBuffer(b"buffer")
    other = LargeBuffer(b"other")

    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        for worker, argument in (("w-0", buffer), ("w-1", other), ("w-2", buffer)):
            connection.call(worker, "open", "plan", argument)
        connection.end()
        return [message async for message in connection.messages()]

    assert asyncio.run(sent()) == [
        BufferPart(0, 6, 0, b"buffer"),
        HostCall(0, "w-0", "open", ["plan", SentBuffer(0)]),
        BufferPart(1, 5, 0, b"other"),
        HostCall(1, "w-1", "open", ["plan", SentBuffer(1)]),
        HostCall(2, "w-2", "open", ["plan", SentBuffer(0)]),
    ]


def test_a_renewal_goes_between_the_parts_of_a_large_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_connection, "PART_BYTES", 2)

    async def sent() -> list[Any]:
        connection = NodeConnection(READY)
        connection.call("w-0", "open", LargeBuffer(b"abcd"))
        connection.end()
        messages = []
        async for message in connection.messages():
            messages.append(message)
            if len(messages) == 1:
                connection.renew()
                await asyncio.sleep(0)  # the event loop takes the renewal
        return messages

    assert asyncio.run(sent()) == [
        BufferPart(0, 4, 0, b"ab"),
        HostCall(1, "", "renew"),
        BufferPart(0, 4, 2, b"cd"),
        HostCall(0, "w-0", "open", [SentBuffer(0)]),
    ]
