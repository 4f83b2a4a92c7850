"""Pumps, which move a stream's items from a server's iterator to the connection.

           ┌──────────────────────────── credit, room in the socket ───────────────────────┐
           ▼                                                                                │
    idle ──claim──▶ running: pull, flush ──no credit, socket full──▶ idle ──────────────────┘
           └─ cancelled ─▶ close ─▶ done      └──END is written──▶ close ─▶ done

The thread that reads the credit steps a plain iterator. Without credit the iterator occupies no thread.
Small items that follow each other quickly are written together, in one frame (streams/outgoing.py). If
the iterator then blocks while some items are not written yet, the pool's leader has them written after
`STALL_S`.

An async iterator has one task on the server's event loop, as long as the stream is open.

No thread waits long for a client that reads slowly. A thread that finds the socket full lingers for a
moment, because a client that reads at all soon makes room. After that moment the thread is free, and the
poller waits for the socket to become writable, while it also waits for the connection to become readable.
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

_SLOW_S = 0.01  # after an item that took longer, the pump checks if the consumer is still there


class Pump:
    """The base of the two pumps, which send items as long as there is credit, and room in the socket.

    Attributes:
        outcome: Done when the stream has ended, for whatever reason. Cancelling it closes the iterator.
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
        """Step the iterator if there is something to do now. With `in_pool`, a thread of the pool does it."""
        raise NotImplementedError

    def _drained(self) -> None:
        self._is_stuck = False
        self.go_on()

    def _flush(self, *, may_linger: bool = False) -> bool:
        """Write what was put. Return False if that must wait for the client to read."""
        # Set the flag before the flush: `_drained`, which resets it, may be called before `flush` returns.
        self._is_stuck = True
        has_written = self._writer.flush(may_linger=may_linger)
        if has_written:
            self._is_stuck = False
        return has_written


class SyncPump(Pump, Promise):
    """A pump that steps a plain iterator. It is the promise of its own outcome.

    Cancelling closes the iterator: at once if it is not running, else at its next item.
    """

    def __init__(self, outgoing: StreamSender, writer: StreamWriter) -> None:
        Promise.__init__(self)
        Pump.__init__(self, outgoing, writer)
        self.outcome = self
        self._is_running = False
        # This lock is held to set `_is_running`, so that only one thread steps the iterator. A thread that
        # finds the flag set may leave. The thread that steps looks once more for work before it leaves.
        self._run_lock = threading.Lock()

    def go_on(self, *, in_pool: bool = False) -> None:
        if self._is_running or not self._can_work():
            return
        if in_pool:
            self._writer.submit(self.run)
        else:
            self.run()

    def run(self) -> None:
        """Do what can be done now, unless another thread is doing it.

        Raises OSError if the consumer is gone. The iterator has been closed by then.
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
            except OSError as error:  # the connection's; errors of the iterator are sent instead
                outgoing.is_cancelled = True
                lost = error
            finally:
                self._is_running = False
        if lost is not None:
            raise lost

    def cancel(self) -> bool:
        """Close the iterator soon, because the consumer wants no more items. Return False."""
        if not self.is_done:
            self.outgoing.is_cancelled = True
            self._writer.submit(self.run)
        return False

    def _can_work(self) -> bool:
        """Return True if there is work. The caller checks `_is_running`: a thread may already be at work."""
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
    """A pump that steps an async iterator. Unlike with a SyncPump, cancelling interrupts a running step."""

    def __init__(self, outgoing: StreamSender, writer: StreamWriter, loop: EventLoop) -> None:
        super().__init__(outgoing, writer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self.outcome = outgoing.context.run(loop.spawn, self._main())

    def go_on(self, *, in_pool: bool = False) -> None:
        loop = self._loop
        changed = self._changed
        if loop is not None and changed is not None:
            # RuntimeError: the loop is closed, and the task has ended with it.
            with contextlib.suppress(RuntimeError):
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
        """Wait until `is_ready()` is True and all that was put has been written."""
        assert self._changed is not None
        while self._is_stuck or not is_ready():
            self._flush()
            self._changed.clear()
            if self._is_stuck or not is_ready():
                await self._changed.wait()


class StreamWriter:
    """A writer of the frames of one call's streams: those of its pump, and those of its arguments."""

    def __init__(self, connection: ServerConnection, core: ServerServices) -> None:
        # Called on a thread of the pool when the rest that `flush` could not write has been written.
        self.on_drained: Callable[[], None] | None = None
        self.items: OutgoingItems | None = None  # each flush includes the items that wait
        self._connection = connection
        self._core = core
        self._queue = WriteQueue(connection.sock)
        self.put = self._queue.put_chunks  # adds a frame for the next flush
        # This lock is held so that only one of the threads that flush parks a waiter for the socket.
        self._lock = threading.Lock()
        self._waits_writable = False
        self.is_closed = False  # once True, nothing more is written
        self.is_holding = False  # the pump is about to let items wait for later items
        self._n_flushes = 0
        self._stall_clock = StallClock()
        self._is_tracked = False

    def flush(self, *, may_linger: bool = False) -> bool:
        """Write what was put, and return True. Return False if that must wait for the client to read."""
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
                except OSError:  # out of descriptors, so a thread of the pool must wait instead
                    self._core.pool.submit(FunctionJob(self._resume))
            return False
        return True

    def send(self, chunks: Sequence[framing.Chunk]) -> None:
        """Put these chunks and flush. Never raises OSError."""
        self.put(chunks)
        self.flush_quietly()

    def hold(self) -> bool:
        """From now on, let items wait for later items. They are written soon even without a flush.

        Returns True.
        """
        self.is_holding = True
        if not self._is_tracked:
            self._is_tracked = True
            self._core.watch(self)
        return True

    def take_over_if_stalled(self, now: float) -> Job | None:
        """Return a job that writes the items that wait while the iterator blocks, or None if no item waits.

        The leader of the pool calls this.
        """
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
        """Raise ConnectionResetError if the client has closed its end, even if writes still succeed."""
        with contextlib.suppress(ValueError):  # this end is closed
            poller = select.poll()
            poller.register(self._connection.sock, getattr(select, "POLLRDHUP", 0))
            if poller.poll(0):
                raise ConnectionResetError("the consumer of the stream is gone")

    def submit(self, run: Callable[[], None]) -> None:
        """Call `run` on a thread of the pool. If it raises OSError, cut the connection."""

        def run_or_cut() -> None:
            try:
                run()
            except OSError:
                self._connection.cut()

        self._core.pool.submit(FunctionJob(run_or_cut))

    def finish(self) -> None:
        """Write all that was put, wait until it is written, and close. Then others may use the connection."""
        while not self._queue.flush_all():
            self._queue.wait_until_writable(1.0)
        self.close()

    def close(self) -> bool:
        """Stop writing. Return True if nothing was left to write."""
        self.is_closed = True
        if self._is_tracked:
            self._core.unwatch(self)
        return self._queue.close()

    def flush_quietly(self) -> None:
        """Flush, and ignore an OSError: the thread that reads will see the end of the connection."""
        with contextlib.suppress(OSError):
            self.flush()

    def _resume(self) -> None:
        """Go on writing, because the socket takes more."""
        self._waits_writable = False
        try:
            if self.flush(may_linger=True) and self.on_drained is not None:
                self.on_drained()
        except OSError:
            self._connection.cut()  # the thread that reads will see the end, and close the connection


class _WritableWaiter(ServerConnection):
    """A duplicate of a connection's socket, parked until the socket takes more."""

    events = selectors.EVENT_WRITE

    def __init__(self, sock: Socket, core: ServerServices, then: Callable[[], None]) -> None:
        super().__init__(raw_of(sock).dup(), core)
        self._then = then

    def run(self) -> None:
        self.close()
        self._then()

    def hang_up(self) -> None:
        """Do nothing: the server hangs up the connection itself."""
