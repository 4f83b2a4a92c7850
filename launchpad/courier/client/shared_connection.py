"""A connection that several threads use for one call with streams: any of them reads for all.

    caller, consumer ──┐  one of them reads, and hands out what arrives: items to the consumer, credit
    argument sender ───┤  to the argument senders, the answer to the caller. The others sleep until
    argument sender ───┘  there is something for them, or until it leaves and another one has to read.

So no thread is needed that does nothing but read.
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
        """Hand out what has arrived; return True when that was all."""

    def lost(self, error: OSError) -> None:
        """Take note that the connection has ended."""


class SharedConnection:
    """Reads and writes for one call, until the connection is given back or closed. Safe from any thread."""

    def __init__(
        self,
        connection: ClientConnection,
        call: CallOnConnection,
        release_connection: Callable[[ClientConnection], None],
    ) -> None:
        self._connection = connection
        self._call = call
        self._release_connection = release_connection  # when the call has ended well
        self.queue = WriteQueue(connection.sock)
        self._changed = Condition()
        self._is_reading = False
        self._is_ours = True
        self.may_spin = True  # no thread of ours needs the interpreter meanwhile
        self.is_over = False  # nothing more is read or written

    @property
    def sock(self) -> Socket | None:
        """To wait for; None when nothing more will be read."""
        return self._connection.sock if self._is_ours and not self.is_over else None

    def begin(self, first: framing.Fields) -> None:
        """Hands out what has arrived together with the call's first answer, unless it was closed before."""
        with self._changed:
            rest, self._connection.rest = self._connection.rest, ()
            if not self.is_over:
                self._on_frames([first, *rest], None)

    def send(self, chunks: Sequence[framing.Chunk]) -> None:
        """Adds a frame, and writes what the socket takes; never waits, never raises."""
        self.queue.put_chunks(chunks)
        try:
            self.queue.flush_all()
        except OSError as error:  # the thread that reads finds the end
            if is_interruption(error):
                raise

    def wait(
        self,
        is_ready: Callable[[], bool],
        deadline: float | None,
        late: Callable[[], Exception],
        check: Callable[[], None],
    ) -> None:
        """Waits until then, and reads meanwhile. Raises `late()` past the deadline.

        Calls `check()` every second or more often, in case there is a reason for which it takes long.
        """
        with self._changed:
            while not is_ready():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise late()
                if self._is_reading:
                    self._changed.wait(left)
                else:
                    self._read(CHECK_EVERY_S if left is None else min(left, CHECK_EVERY_S))
                    check()

    def read_now(self) -> None:
        """Takes in what has arrived, unless another thread reads; does not wait."""
        with self._changed:
            while not self._is_reading and not self.is_over:
                self._read(0.0)
                if not has_pending(self._connection.sock):
                    return

    def close(self) -> None:
        """Closes the connection, when no thread uses it any more: which is at once."""
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
        """`close`, for when no thread waits; takes no lock, as the garbage collector may be calling.

        With `is_used`, some thread still uses the connection, and calls `close` when it notices.
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
        """For a forked child: the connection is the parent's. Locks may be held for ever."""
        self._changed = Condition()
        self.is_over = True
        self._connection.close()

    # The rest is called with the lock held.

    def _read(self, limit_s: float) -> None:
        """Reads once, for up to so long, without the lock; then hands out what has come.

        If it is interrupted, what has come may be lost, and the thread that waits has to close the stream.
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
            # First, before another thread reads on what is for the next call.
            self.is_over = True
            self._is_ours = False
            self._changed.notify_all()
            if self.queue.close():
                self._connection.limit(CHECK_EVERY_S)
                self._release_connection(self._connection)
            else:
                self._connection.close()
