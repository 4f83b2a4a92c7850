"""The future of a call that has a connection to itself (shm_calls.py)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from launchpad.courier.client.future import PipelinedFuture, next_call_id
from launchpad.courier.interruptions import Lock
from launchpad.courier.shm.sender import SharedBuffers

if TYPE_CHECKING:
    from launchpad.courier.client.channel import SocketChannel
    from launchpad.courier.client.shm_calls import ShmCalls
    from launchpad.courier.client.shm_connection import ShmClientConnection

_monotonic = time.monotonic


class ShmRequest(NamedTuple):
    """What a call sends, kept until it is answered."""

    body: bytes
    shared: SharedBuffers | None  # None if no argument is large: then the result was, the last time
    small: list[memoryview]  # the other buffers
    headers: bytes
    spare: list[memoryview] | None  # a copy of all buffers, of a call that may run twice


class ShmFuture(PipelinedFuture):
    """The future of a call that has a connection to itself; if it goes to the pipeline, as any other."""

    __slots__ = ("calls", "claim", "connection", "is_read", "request")

    def __init__(
        self, calls: ShmCalls, channel: SocketChannel, method: bytes, size: int, request: ShmRequest
    ) -> None:
        counts = channel.counts[method]
        super().__init__(calls, next_call_id(), method, channel.options, counts, size, channel)
        self.calls = calls
        self.request: ShmRequest | None = request
        self.connection: ShmClientConnection | None = None  # from when it is sent until it is read
        self.claim = Lock()
        self.is_read = False  # by a thread that waits for the answer
        self.deadline = channel.options.find_deadline(self.began)

    def done(self) -> bool:
        if not self.is_completed:
            self.calls.read_now(self)
        return self.is_completed

    def watch(self) -> None:
        self.calls.watch(self)

    def _wait(self, timeout: float | None) -> None:
        began = _monotonic()
        if timeout is None or timeout > 0:
            self.calls.read_for(self, timeout)
        else:
            self.calls.read_now(self)
        if not self.is_completed:
            super()._wait(None if timeout is None else timeout - (_monotonic() - began))

    def _complete(self, bytes_in: int) -> None:
        self.request = None  # not released: a thread may be about to send it
        super()._complete(bytes_in)
        self.calls.drop_connection(self)  # if it has one still, there was no answer
