"""A connection that several threads use for one call with streams. One of them reads for all.

    caller, consumer ──┐  one of them reads, and passes on what arrives: items to the consumer, credit
    argument sender ───┤  to the argument senders, the answer to the caller. The others sleep until
    argument sender ───┘  there is something for them, or until the reader leaves and another must read.

So no separate reader thread is needed.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier.client.connection import CHECK_EVERY_S, ClientConnection
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import Condition, is_interruption
from launchpad.courier.protocol import framing
from launchpad.courier.transport.stream_socket import Socket, has_pending
from launchpad.courier.transport.write_queue import WriteQueue


class CallOnConnection(Protocol):
    """The call that a connection is used for: `StreamCall`."""

    def on_frames(self, frames: Sequence[framing.Fields]) -> bool:
        """Pass on the frames that have arrived. Return True if no more frames will come."""

    def lost(self, error: OSError) -> None:
        """End the call with an error, because the connection has ended."""


class SharedConnection:
    """A connection that several threads use for one call, until it is given back or closed. Thread-safe."""

    def __init__(
        self,
        connection: ClientConnection,
        call: CallOnConnection,
        release_connection: Callable[[ClientConnection], None],
    ) -> None:
        self._connection = connection
        self._call = call
        self._release_connection = release_connection  # called when the call has ended well
        self.queue = WriteQueue(connection.sock)
        # A thread holds this lock while it becomes the reader or passes frames on, to keep their order.
        self._changed = Condition()
        self._is_reading = False
        self._is_ours = True
        self.may_spin = True  # False if another thread of the call may need the interpreter
        self.is_over = False  # nothing more is read or written

    @property
    def sock(self) -> Socket | None:
        """The socket to wait for; None when nothing more will be read."""
        return self._connection.sock if self._is_ours and not self.is_over else None

    def begin(self, first: framing.Fields) -> None:
        """Pass on the first answer and what arrived with it, unless the call was closed before."""
        with self._changed:
            frames = self._connection.rest
            self._connection.rest = ()
            if not self.is_over:
                self._on_frames([first, *frames], None)

    def send(self, chunks: Sequence[framing.Chunk]) -> None:
        """Queue a frame, and write what the socket takes. This never waits, and raises only interruptions."""
        self.queue.put_chunks(chunks)
        try:
            self.queue.flush_all()
        except OSError as error:  # the reader notices that the connection has ended
            if is_interruption(error):
                raise

    def wait(
        self,
        is_ready: Callable[[], bool],
        deadline: float | None,
        late: Callable[[], Exception],
        check: Callable[[], None],
    ) -> None:
        """Wait until `is_ready()`, and read while waiting. Raise `late()` past the deadline.

        Calls `check()` every second or more often, to look for a reason why the wait is long.
        """
        with self._changed:
            while not is_ready():
                remaining_s = None if deadline is None else deadline - time.monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    raise late()
                if self._is_reading:
                    self._changed.wait(remaining_s)
                else:
                    self._read(
                        CHECK_EVERY_S if remaining_s is None else min(remaining_s, CHECK_EVERY_S)
                    )
                    check()

    def read_now(self) -> None:
        """Read what has arrived, without waiting. If another thread is reading, do nothing."""
        with self._changed:
            while not self._is_reading and not self.is_over:
                self._read(0.0)
                if not has_pending(self._connection.sock):
                    return

    def close(self) -> None:
        """Shut the connection down, wait until no thread reads from it, and close it."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
            if self._is_ours:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(socket.SHUT_RDWR)
                while self._is_reading:
                    self._changed.wait()
                self.queue.close()
                self._connection.close()

    def abandon(self, *, is_used: bool) -> None:
        """Close without taking a lock. The garbage collector calls this when no thread waits for an item.

        With `is_used`, a thread still uses the connection. That thread calls `close` when it notices.
        """
        if self.is_over:
            return
        self.is_over = True
        if is_used:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        else:
            self._connection.close()

    def drop_inherited(self) -> None:
        """Close the parent's connection in a forked child. A thread of the parent may hold the old lock."""
        self._changed = Condition()
        self.is_over = True
        self._connection.close()

    # The following methods are called with the lock held.

    def _read(self, limit_s: float) -> None:
        """Read once, without the lock, for up to `limit_s` seconds. Then pass on what has arrived.

        If the read is interrupted, data may be lost, and the thread that waits must close the stream.
        """
        self._is_reading = True
        frames: Sequence[framing.Fields] = ()
        error: OSError | None = None
        try:
            frames = self._changed.without(self._receive, limit_s)
        except BlockingIOError:
            pass
        except OSError as failed:
            if is_interruption(failed):
                raise
            error = failed
        finally:
            self._is_reading = False
            self._changed.notify_all()
        if not self.is_over:
            self._on_frames(frames, error)

    def _receive(self, limit_s: float) -> Sequence[framing.Fields]:
        if not limit_s:
            return self._connection.receive_all(socket.MSG_DONTWAIT)
        self._connection.limit(limit_s)
        return self._connection.receive_all(may_spin=self.may_spin)

    def _on_frames(self, frames: Sequence[framing.Fields], error: OSError | None) -> None:
        is_done = False
        try:
            is_done = self._call.on_frames(frames)
        except ProtocolError as failed:
            error = ConnectionAbortedError(str(failed))
        if error is not None:
            self._call.lost(error)
            self.close()
        elif is_done:
            # Set this before another thread can read. Otherwise that thread could take frames of the next
            # call on this connection.
            self.is_over = True
            self._is_ours = False
            self._changed.notify_all()
            if self.queue.close():
                self._connection.limit(CHECK_EVERY_S)
                self._release_connection(self._connection)
            else:
                self._connection.close()
