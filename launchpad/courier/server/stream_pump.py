"""What moves a stream's items from a server's iterator to the connection.

           ┌──────────────────────────── credit, room in the socket ───────────────────────┐
           ▼                                                                                │
    idle ──claim──▶ running: pull, flush ──no credit, socket full──▶ idle ──────────────────┘
           └─ cancelled ─▶ close ─▶ done      └──END is written──▶ close ─▶ done

A plain iterator is stepped by the thread that brings the credit; without credit it takes no thread.
Small items that follow each other quickly are written together, in one frame (streams/outgoing.py). Should
the iterator then block with some of them not written, the pool's leader has them written after `STALL_S`.

An async iterator has one task on the server's event loop, for as long as the stream is open.

No thread waits long for a client that reads slowly. One that finds the socket full lingers a moment,
as a client that reads at all soon makes room. Then the rest waits in the poller, beside the
connection, and the thread is free.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server.connection import LINGER_S, ServerConnection
from launchpad.courier.server.event_loop import EventLoop
from launchpad.courier.server.thread_pool import FunctionJob, Job
from launchpad.courier.streams.outgoing import OutgoingItems
from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.streams.stepping import (
    STALL_S,
    UNWATCH_S,
    LoopFlush,
    StallClock,
    show_close_error,
)
from launchpad.courier.transport.stream_socket import Socket, raw_of
from launchpad.courier.transport.write_queue import WriteQueue

if TYPE_CHECKING:
    import asyncio

    from launchpad.courier.server.services import ServerServices

_SLOW_S = 0.01  # after items that took longer, the consumer is checked for


class Pump:
    """Moves a stream's items to the connection, as long as there is credit, and room in the socket.

    Attributes:
        outcome: Done when the stream has ended, one way or the other. Cancelling it closes the iterator.
    """

    outcome: Promise

    def __init__(self, outgoing: StreamSender, writer: StreamWriter) -> None:
        self.outgoing = outgoing
        self._writer = writer
        self._is_stuck = False
        outgoing.items.put = writer.put
        writer.items = outgoing.items
        writer.on_drained = self._drained

    def go_on(self, *, in_pool: bool = False) -> None:
        """Step the iterator if there is something to do now: here, or if need be on a thread of the pool."""
        raise NotImplementedError

    def _drained(self) -> None:
        self._is_stuck = False
        self.go_on()

    def _flush(self, *, may_linger: bool = False) -> bool:
        """Write what was put. Return False when that has to wait for the client to read."""
        self._is_stuck = True  # first, because `_drained` may be called before `flush` returns
        has_written = self._writer.flush(may_linger=may_linger)
        if has_written:
            self._is_stuck = False
        return has_written


class SyncPump(Pump, Promise):
    """Steps a plain iterator. It is its own outcome.

    Cancelling closes the iterator: at once if it is not running, else at its next item.
    """

    def __init__(self, outgoing: StreamSender, writer: StreamWriter) -> None:
        Promise.__init__(self)
        Pump.__init__(self, outgoing, writer)
        self.outcome = self
        self._is_running = False
        self._run_lock = threading.Lock()

    def go_on(self, *, in_pool: bool = False) -> None:
        if self._is_running or not self._can_work():
            return
        if in_pool:
            self._writer.submit(self.run)
        else:
            self.run()

    def run(self) -> None:
        """Does what can be done now, unless another thread does so.

        Raises OSError when the consumer is gone; the iterator has been closed then.
        """
        outgoing = self.outgoing
        lost = None
        while True:
            with self._run_lock:
                if self._is_running or not self._can_work():
                    break
                self._is_running = True
            try:
                if not outgoing.is_cancelled and not outgoing.items.has_ended:
                    outgoing.context.run(self._send_items)
                if outgoing.is_cancelled or (outgoing.items.has_ended and not self._is_stuck):
                    try:
                        outgoing.context.run(outgoing.close)
                    except BaseException:
                        show_close_error()
                    self.set_result(None)
            except OSError as error:  # the connection's: what the iterator raises is sent
                outgoing.is_cancelled = True
                lost = error
            finally:
                self._is_running = False
        if lost is not None:
            raise lost

    def cancel(self) -> bool:
        """The consumer wants no more."""
        if not self.is_done:
            self.outgoing.is_cancelled = True
            self._writer.submit(self.run)
        return False

    def _can_work(self) -> bool:
        """Return True if there is something to do, if no thread does it already (`_is_running`)."""
        if self.is_done:
            return False
        if self.outgoing.is_cancelled:
            return True
        items = self.outgoing.items
        return not self._is_stuck and (items.has_credit or items.has_ended)

    def _send_items(self) -> None:
        outgoing = self.outgoing
        writer = self._writer
        while outgoing.items.has_credit and not outgoing.is_cancelled:
            began = time.monotonic()
            outgoing.pull(writer.hold)
            writer.is_holding = False
            if time.monotonic() - began > _SLOW_S:
                writer.check_peer()
            if not self._flush(may_linger=True):
                return


class AsyncPump(Pump):
    """Steps an async iterator. Otherwise as a SyncPump, but cancelling does not wait for the next item."""

    def __init__(self, outgoing: StreamSender, writer: StreamWriter, loop: EventLoop) -> None:
        super().__init__(outgoing, writer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self.outcome = outgoing.context.run(loop.spawn, self._main())

    def go_on(self, *, in_pool: bool = False) -> None:
        loop = self._loop
        if loop is not None and (changed := self._changed) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                loop.call_soon_threadsafe(changed.set)

    async def _main(self) -> None:
        import asyncio

        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        outgoing = self.outgoing
        items = outgoing.items
        flush = LoopFlush(self._flush)
        try:
            while not items.has_ended and not self._writer.is_closed:
                await self._wait(lambda: items.has_credit)
                await outgoing.pull_async(flush.soon)
                self._flush()
            await self._wait(lambda: True)
        except OSError:
            pass  # the consumer is gone
        finally:
            try:
                await outgoing.close_async()
            except (Exception, SystemExit, KeyboardInterrupt):
                show_close_error()

    async def _wait(self, is_ready: Callable[[], bool]) -> None:
        """Until then, and until all that was put has been written."""
        assert self._changed is not None
        while self._is_stuck or not is_ready():
            self._flush()
            self._changed.clear()
            if self._is_stuck or not is_ready():
                await self._changed.wait()


class StreamWriter:
    """Writes the frames of the streams of one call: those of a pump, and of arguments."""

    def __init__(self, connection: ServerConnection, core: ServerServices) -> None:
        # Called on a thread of the pool when what `flush` had to leave has been written.
        self.on_drained: Callable[[], None] | None = None
        self.items: OutgoingItems | None = None  # which go with all that is flushed
        self._connection = connection
        self._core = core
        self._queue = WriteQueue(connection.sock)
        self.put = self._queue.put_chunks  # adds a frame to what is to be written
        self._lock = threading.Lock()
        self._waits_writable = False
        self.is_closed = False  # nothing is written any more
        self.is_holding = False  # the pump is about to let items wait for later ones
        self._n_flushes = 0
        self._stall_clock = StallClock()
        self._is_tracked = False

    def flush(self, *, may_linger: bool = False) -> bool:
        """Writes what was put; False when that has to wait for the client to read."""
        if self.items is not None:
            self.items.put_waiting()
        self._n_flushes += 1
        while not self._queue.flush_all():
            if may_linger and self._queue.wait_until_writable(LINGER_S):
                continue
            with self._lock:
                must_wait = not self._waits_writable and not self.is_closed
                self._waits_writable |= must_wait
            if must_wait:
                sock = self._connection.sock
                try:
                    self._core.poller.park(_WritableWaiter(sock, self._core, self._resume))
                except OSError:  # out of descriptors: so a thread has to wait
                    self._core.pool.submit(FunctionJob(self._resume))
            return False
        return True

    def send(self, chunks: Sequence[framing.Chunk]) -> None:
        """Puts and flushes; never raises."""
        self.put(chunks)
        self.flush_quietly()

    def hold(self) -> bool:
        """From now on items may wait: they are written soon even if the caller does not flush."""
        self.is_holding = True
        if not self._is_tracked:
            self._is_tracked = True
            self._core.watch(self)
        return True

    def take_over_if_stalled(self, now: float) -> Job | None:
        """For the leader of the pool: writes what an iterator that blocks has left behind."""
        still_s = self._stall_clock.still_s(self._n_flushes, now)
        if self.items is not None and self.items.waiting and still_s >= STALL_S:
            return FunctionJob(self.flush_quietly)
        if still_s >= UNWATCH_S:
            self._is_tracked = False
            self._core.unwatch(self)
            if self.is_holding and not self.is_closed:
                self.hold()
        return None

    def check_peer(self) -> None:
        """Raises ConnectionResetError if the client has closed: a write might still succeed."""
        with contextlib.suppress(ValueError):  # closed by us
            poller = select.poll()
            poller.register(self._connection.sock, getattr(select, "POLLRDHUP", 0))
            if poller.poll(0):
                raise ConnectionResetError("the consumer of the stream is gone")

    def submit(self, run: Callable[[], None]) -> None:
        """Runs it on a thread of the pool. An OSError is taken for the end of the connection."""

        def run_or_cut() -> None:
            try:
                run()
            except OSError:
                self._connection.cut()

        self._core.pool.submit(FunctionJob(run_or_cut))

    def finish(self) -> None:
        """Returns when all has been written, and the connection is free for others."""
        while not self._queue.flush_all():
            self._queue.wait_until_writable(1.0)
        self.close()

    def close(self) -> bool:
        """Writes no more; True when nothing was left to write."""
        self.is_closed = True
        if self._is_tracked:
            self._core.unwatch(self)
        return self._queue.close()

    def flush_quietly(self) -> None:
        """`flush`, where the thread that reads will see the end of the connection."""
        with contextlib.suppress(OSError):
            self.flush()

    def _resume(self) -> None:
        """The socket takes more."""
        self._waits_writable = False
        try:
            if self.flush(may_linger=True) and self.on_drained is not None:
                self.on_drained()
        except OSError:
            self._connection.cut()  # the thread that reads will see the end, and close


class _WritableWaiter(ServerConnection):
    """Waits, beside a connection, until the socket takes more."""

    events = selectors.EVENT_WRITE

    def __init__(self, sock: Socket, core: ServerServices, then: Callable[[], None]) -> None:
        super().__init__(raw_of(sock).dup(), core)
        self._then = then

    def run(self) -> None:
        self.close()
        self._then()

    def hang_up(self) -> None:
        """Does nothing: the connection itself is hung up."""
