"""A line that several threads use, for one call with streams: whoever needs something reads.

    caller, consumer ─┐  one of them reads, and hands out what arrives: items to the consumer,
    feeder ───────────┤  credit to the feeders, the answer to the caller. The others sleep until
    feeder ───────────┘  it has something for them, or until it leaves and another one has to read.

So no thread is needed that does nothing but read.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier.carriers.sockets import Socket, has_pending
from launchpad.courier.clients.line import PATIENCE_S, Line
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import wire
from launchpad.courier.streams.outlet import Outlet


class Call(Protocol):
    """Whose line it is."""

    def take_in(self, frames: Sequence[wire.Fields]) -> bool:
        """Hands out what has arrived; True when that was all: the line is free for other calls.

        Raises ProtocolError.
        """

    def lost(self, error: OSError) -> None:
        """The connection has ended."""


class SharedLine:
    """Reads and writes for one call, until the line is given back or closed.

    Args:
        put_back: takes the line when the call has ended well.

    Safe from any thread.
    """

    def __init__(self, line: Line, call: Call, put_back: Callable[[Line], None]) -> None:
        self._line = line
        self._call = call
        self._put_back = put_back
        self.outlet = Outlet(line.sock)
        self._changed = threading.Condition()
        self._is_reading = False
        self._is_ours = True
        #: The call is over: nothing more is read or written.
        self.is_over = False

    @property
    def sock(self) -> Socket | None:
        """To wait for; None when nothing more will be read."""
        return self._line.sock if self._is_ours and not self.is_over else None

    def begin(self, first: wire.Fields) -> None:
        """Hands out what has arrived together with the call's first answer."""
        with self._changed:
            self._take_in([first, *self._line.take_rest()], None)

    def send(self, chunks: Sequence[wire.Chunk]) -> None:
        """Adds a frame, and writes what the socket takes; never waits, never raises."""
        self.outlet.put(chunks)
        with contextlib.suppress(OSError):  # who reads will see the end
            self.outlet.flush()

    def wait(
        self,
        is_ready: Callable[[], bool],
        deadline: float | None,
        late: Callable[[], Exception],
        look: Callable[[], None],
    ) -> None:
        """Waits until then, and reads meanwhile. Raises `late()` past the deadline.

        Calls `look()` every second or more often, in case there is a reason for which it takes long.
        """
        with self._changed:
            while not is_ready():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise late()
                if self._is_reading:
                    self._changed.wait(left)
                else:
                    self._read(PATIENCE_S if left is None else min(left, PATIENCE_S))
                    look()

    def read_now(self) -> None:
        """Takes in what has arrived, unless another thread reads; does not wait."""
        with self._changed:
            while not self._is_reading and not self.is_over:
                self._read(0.0)
                if not has_pending(self._line.sock):
                    return

    def close(self) -> None:
        """Closes the line, as soon as nobody uses it any more: which is at once."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
            if self._is_ours:
                self._shut_down()
                while self._is_reading:
                    self._changed.wait()
                self.outlet.close()
                self._line.close()

    def abandon(self, *, is_used: bool) -> None:
        """`close`, for when nobody waits. Takes no lock: it is called by the collector of garbage.

        With `is_used`, some thread still uses the line, and calls `close` when it notices.
        """
        if self.is_over:
            return
        self.is_over = True
        if is_used:
            self._shut_down()
        else:
            self._line.close()

    def drop_inherited(self) -> None:
        """For a forked child: the line is the parent's. Locks may be held for ever."""
        self._changed = threading.Condition()
        self.is_over = True
        self._line.close()

    # The rest is called with the lock held.

    def _read(self, limit_s: float) -> None:
        """Reads once, for up to so long, without the lock; then hands out what has come."""
        self._is_reading = True
        self._changed.release()
        frames: Sequence[wire.Fields] = ()
        error: OSError | None = None
        try:
            frames = self._receive(limit_s)
        except BlockingIOError:
            pass
        except OSError as failed:
            error = failed
        finally:
            self._changed.acquire()
            self._is_reading = False
            self._changed.notify_all()
        if not self.is_over:
            self._take_in(frames, error)

    def _receive(self, limit_s: float) -> Sequence[wire.Fields]:
        if not limit_s:
            return self._line.receive_all(socket.MSG_DONTWAIT)
        self._line.limit(limit_s)
        return self._line.receive_all()

    def _take_in(self, frames: Sequence[wire.Fields], error: OSError | None) -> None:
        is_done = False
        try:
            is_done = self._call.take_in(frames)
        except ProtocolError as failed:
            error = ConnectionAbortedError(str(failed))
        if error is not None:
            self._call.lost(error)
            self.close()
        elif is_done:
            self._give_back()  # before another thread reads on what is for the next call

    def _give_back(self) -> None:
        self.is_over = True
        self._is_ours = False
        self._changed.notify_all()
        if self.outlet.close():
            self._line.limit(PATIENCE_S)
            self._put_back(self._line)
        else:
            self._line.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._line.sock.shutdown(socket.SHUT_RDWR)
