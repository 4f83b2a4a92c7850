"""The server's end of a connection as its streams write to it: nobody waits long for a slow reader.

A thread that finds the socket full lingers a moment, as a reader that reads at all soon makes room.
Then the rest waits in a selector, beside the session, and the thread is free.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from launchpad.courier.carriers.sockets import Socket, raw_of
from launchpad.courier.protocol import wire
from launchpad.courier.servers.connection import LINGER_S, Connection
from launchpad.courier.servers.pool import Job
from launchpad.courier.servers.work import Work
from launchpad.courier.streams.outlet import Outlet

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

_STALL_S = 0.002  # an item waits no longer than about this for the next one, to be written with it
_UNWATCH_S = 1.0


class SocketLink:
    """What pumps and arguments write to.

    Args:
        sock: the session's.
        house: the server's.
        drained: called on a thread of the pool when what `flush` had to leave has been written.
    """

    def __init__(self, sock: Socket, house: House, drained: Callable[[], None]) -> None:
        self._sock = sock
        self._house = house
        self._drained = drained
        self._outlet = Outlet(sock)
        self._lock = threading.Lock()
        self._awaits_room = False
        self.is_closed = False  # nothing is written any more
        self._is_holding = False  # items that were put, for later ones to join them
        self._n_flushes = 0
        self._seen = (0, 0.0)  # flushes when the leader last saw a new number, and when that was
        self._is_watched = False

    def put(self, chunks: Sequence[wire.Chunk]) -> None:
        """Adds a frame to what is to be written."""
        self._outlet.put(chunks)

    def flush(self, *, may_linger: bool = False) -> bool:
        """Writes what was put; False when that has to wait for the client to read."""
        self._is_holding = False
        self._n_flushes += 1
        while not self._outlet.flush():
            if not may_linger or not self._outlet.wait_for_room(LINGER_S):
                self._await_room()
                return False
        return True

    def send(self, chunks: Sequence[wire.Chunk]) -> None:
        """Puts and flushes; never raises, since who reads will see the end."""
        self.put(chunks)
        self._flush_quietly()

    def hold(self) -> None:
        """What was put is to be written soon, even if who put it does not come back to it."""
        self._is_holding = True
        if not self._is_watched:
            self._is_watched = True
            self._house.watch(self)

    def relieve(self, now: float) -> Job | None:
        """For the leader: writes what an iterator that blocks has left behind."""
        n_flushes, since = self._seen
        if n_flushes != self._n_flushes:
            self._seen = self._n_flushes, now
        elif self._is_holding and now - since >= _STALL_S:
            return Work(self._flush_quietly)
        elif now - since >= _UNWATCH_S:
            self._unwatch()
        return None

    def check_peer(self) -> None:
        """Raises ConnectionResetError if the client has closed: a write might not tell yet."""
        with contextlib.suppress(ValueError):  # closed by us: that is known
            poller = select.poll()
            poller.register(self._sock, getattr(select, "POLLRDHUP", 0))
            if poller.poll(0):
                raise ConnectionResetError("the consumer of the stream is gone")

    def submit(self, run: Callable[[], None]) -> None:
        """Runs it on a thread of the pool. An OSError is taken for the end of the connection."""
        self._house.pool.submit(Work(partial(self._run_or_cut, run)))

    def cut(self) -> None:
        """Ends reading and writing: who reads will see the end, and close."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """Returns when all has been written, and the connection is free for others."""
        while not self._outlet.flush():
            self._outlet.wait_for_room(1.0)
        self.close()

    def close(self) -> bool:
        """Writes no more; True when nothing was left to write."""
        self.is_closed = True
        if self._is_watched:
            self._house.unwatch(self)
        return self._outlet.close()

    def _run_or_cut(self, run: Callable[[], None]) -> None:
        try:
            run()
        except OSError:
            self.cut()

    def _flush_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self.flush()

    def _await_room(self) -> None:
        with self._lock:
            if self._awaits_room or self.is_closed:
                return
            self._awaits_room = True
        try:
            self._house.park(_Room(self._sock, self._house, self._go_on))
        except OSError:  # out of descriptors: so a thread has to wait
            self._house.pool.submit(Work(self._go_on))

    def _go_on(self) -> None:
        """The socket takes more."""
        self._awaits_room = False
        self._run_or_cut(self._write_the_rest)

    def _write_the_rest(self) -> None:
        if self.flush(may_linger=True):
            self._drained()

    def _unwatch(self) -> None:
        self._is_watched = False
        self._house.unwatch(self)
        if self._is_holding and not self.is_closed:
            self.hold()


class _Room(Connection):
    """Waits, beside a session, until the socket takes more."""

    events = selectors.EVENT_WRITE

    def __init__(self, sock: Socket, house: House, then: Callable[[], None]) -> None:
        super().__init__(raw_of(sock).dup(), house)
        self._then = then

    def run(self) -> None:
        self.close()
        self._then()

    def hang_up(self) -> None:
        """Nothing: that is the session's."""
