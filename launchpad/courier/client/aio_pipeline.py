"""A pipeline for the calls that one event loop waits for: the loop itself reads and writes.

    await client.aio.step(batch) ──▶ AioPipeline ──▶ WriteQueue ──▶ server
                                                                       │
             the coroutine ◀── LoopCall ◀── the loop, when the socket is readable

So no thread has to wake another for a call. The pipeline still has a thread for everything that would hold up
the loop: the thread connects, waits until the socket takes more bytes, and watches deadlines. Once the
connection has ended, the thread also reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from launchpad.courier.client.future import PipelinedFuture
from launchpad.courier.client.pipeline import BATCH, Pipeline
from launchpad.courier.client.reader import Reader, Receive
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import Lock, in_another_thread, is_interruption
from launchpad.courier.protocol import framing
from launchpad.courier.transport.stream_socket import Socket, has_pending

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_running_loop = asyncio._get_running_loop


class LoopCall(PipelinedFuture):
    """A call that a coroutine waits for."""

    __slots__ = ("waiter",)

    waiter: asyncio.Future[None]

    def wait_in(self, loop: AbstractEventLoop) -> asyncio.Future[None] | None:
        """Return a future that is done when this call is; None if the call is done. Call this only once."""
        waiter = self.waiter = loop.create_future()
        # This must come before the check of `is_completed`: the thread that completes the call does the two
        # in reverse order (future.py).
        self.is_watched = True
        return None if self.is_completed else waiter

    def notify(self) -> None:
        loop = cast("AioPipeline", self.owner).loop
        if _running_loop() is loop:
            self._wake()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class AioPipeline(Pipeline):
    """A pipeline whose calls are made in the thread of the loop. They may end in any thread."""

    new_call = LoopCall

    def __init__(self, peer: ServerInfo, loop: AbstractEventLoop) -> None:
        super().__init__(peer)
        self.loop = loop
        self.new_reader = partial(LoopReader, loop)
        self._will_flush = False

    def close(self) -> None:
        reader = self.reader
        if isinstance(reader, LoopReader) and _running_loop() is self.loop:
            reader.unwatch()  # don't leave it to the loop, which may end at once
        super().close()

    def drop_inherited(self) -> None:
        super().drop_inherited()
        reader = self.reader
        if isinstance(reader, LoopReader):
            reader.drop_inherited()

    def _put(self, call: PipelinedFuture) -> None:
        queue = self.queue
        reader = self.reader
        queue.put(call)
        if reader is None:
            in_another_thread(self._start, call)
        elif len(self._pending.calls) == 1 or len(queue) >= BATCH:
            self._flush()
        elif not self._will_flush:
            self._will_flush = True  # `_flush` also sends the calls that are put until it runs
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        reader = self.reader
        if reader is not None and not reader.flush():
            self._wake()  # the thread waits until the socket takes more bytes


class LoopReader(Reader):
    """A reader that reads and writes in the event loop. Its thread does what would hold up the loop."""

    def __init__(self, loop: AbstractEventLoop, *args: Any) -> None:
        super().__init__(*args)
        self._loop = loop
        # This lock is held to read. At the end of a connection the loop and the thread may both try to read,
        # and the decoder must get the bytes in the right order.
        self._reading = Lock()
        # The loop has a duplicate of the socket's descriptor. So each side may close its own at any time.
        self._watched = -1
        self._decoder: framing.FrameDecoder | None = None  # the current connection's

    def flush(self) -> bool:
        return self._flush(wait=False)

    def unwatch(self) -> None:
        """Stop watching. Call this in the thread of the loop, or when the loop is closed."""
        fd = self._watched
        self._watched = -1
        if fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)

    def drop_inherited(self) -> None:
        """Close the descriptor in a forked child. Don't change the loop's selector: the parent shares it."""
        fd = self._watched
        self._watched = -1
        if fd >= 0:
            os.close(fd)

    def _read_until_end(self, sock: Socket) -> None:
        self._waits_for = 0  # wait only for the connection's end, which poll always reports
        try:
            super()._read_until_end(sock)
        finally:
            with self._reading:
                self._has_ended = True
                self._decoder = None
            self._call_loop(self.unwatch)

    def _begin(self, sock: Socket, receive: Receive, decoder: framing.FrameDecoder) -> None:
        self._decoder = decoder
        on_readable = partial(self._on_readable, sock, receive, decoder)
        self._call_loop(partial(self._watch, os.dup(sock.fileno()), on_readable))

    def _call_loop(self, function: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            function()

    def _watch(self, fd: int, on_readable: Any) -> None:
        self.unwatch()
        self._watched = fd
        if self._has_ended or self._loop.is_closed():
            self.unwatch()
        else:
            self._loop.add_reader(fd, on_readable)

    def _on_readable(self, sock: Socket, receive: Receive, decoder: framing.FrameDecoder) -> None:
        """Read what has arrived. The loop calls this."""
        self._was_busy = True
        with self._reading:
            if decoder is not self._decoder:
                return  # the loop had found the previous connection readable
            try:
                while not (self._has_ended or self._waits_for):
                    super()._read(receive, decoder)
                    # The loop does not see data that the socket has buffered.
                    if not has_pending(sock):
                        break
            except BaseException as error:
                self._has_ended = True
                if is_interruption(error) or not isinstance(error, OSError | ProtocolError):
                    self.wake()  # data that had arrived may be lost
                    raise
            is_over = self._has_ended or bool(self._waits_for)
        if is_over:
            self.unwatch()
            self.wake()

    def _read(self, receive: Receive, decoder: framing.FrameDecoder) -> None:
        """Read in the thread after the connection or the loop has ended: answers may have arrived before."""
        with self._reading:
            self._waits_for = select.POLLIN
            super()._read(receive, decoder)
