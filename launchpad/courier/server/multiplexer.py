"""One thread that serves many serial connections, where clients call at the same time and calls are quick.

    SerialConnection ──its calls are quick, and not the only ones──▶ Multiplexer ── one thread, one epoll
           ▲                                                            │
           └── slow by now · the only one by now · idle ◀───────────────┘

A thread for each of them would do little but hand the interpreter to the next one: each call would cost two
such hand-overs, which take longer than the call. One thread reads what has come on all connections, and
answers it in turn.

A method that blocks after all does not hold up the others for long: the leader of the pool checks every
`STALL_S` whether the same call still runs, and then has another thread go on in place of this one.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from launchpad.courier.server.connection import LINGER_S
from launchpad.courier.server.thread_pool import Job

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore
    from launchpad.courier.server.serial_connection import SerialConnection

ENTERS_S, LEAVES_S = 50e-6, 100e-6  # averages of what a connection's calls take
_ALONE = 64  # calls in a row of one connection: no other one needs the thread

_monotonic = time.monotonic


class Multiplexer:
    """The connections of one server that are served so. Safe from any thread."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._epoll: select.epoll | None = None  # while there is a turn
        self._connections: dict[int, SerialConnection] = {}  # by descriptor
        self._ready: deque[tuple[int, SerialConnection]] = deque()
        self._turn: MultiplexerTurn | None = None

    def add(self, connection: SerialConnection) -> None:
        """Serves it from now on; the thread that calls this must not any more."""
        fd = connection.sock.fileno()
        turn = None
        with self._lock:
            is_added = not self._core.is_stopping
            if is_added:
                self._connections[fd] = connection
                try:
                    self._epoll = self._epoll or select.epoll()
                    self._epoll.register(fd, select.EPOLLIN)
                except (OSError, ValueError):
                    del self._connections[fd]
                    is_added = False
                else:
                    if self._turn is None:
                        turn = self._turn = MultiplexerTurn(self)
        if not is_added:
            self._core.poller.park(connection)
        if turn is not None:
            self._core.pool.submit(turn)

    def take_over_if_stalled(self, now: float) -> Job | None:
        """A job that goes on in place of a method that blocks; None if none does."""
        with self._lock:
            turn = self._turn
            if turn is None or not turn.seems_blocked():
                return None
            self._forget(turn)
            self._turn = MultiplexerTurn(self)
            return self._turn

    def release(self) -> None:
        """Leaves all connections to the poller, but for one that is served at the moment."""
        with self._lock:
            turn, self._turn = self._turn, None
            if turn is not None and turn.since:
                self._forget(turn)
            idle, self._connections = self._connections, {}
            self._ready.clear()
            epoll, self._epoll = self._epoll, None
            self._core.unwatch(self)
        if epoll is not None:
            epoll.close()
        for connection in idle.values():
            self._core.poller.park(connection)

    def drop_inherited(self) -> None:
        """For a forked child."""
        if self._epoll is not None:
            self._epoll.close()

    def serve(self, turn: MultiplexerTurn) -> None:
        """Serves them for as long as `turn` is the one that has the turn."""
        with self._lock:  # so that it is watched if, and only if, there is a turn
            if self._turn is turn:
                self._core.watch(self)
        while self._turn is turn:
            with self._lock:
                if self._turn is not turn:
                    return
                fd, connection = self._ready.popleft() if self._ready else (-1, None)
                if connection is not None:
                    turn.fd, turn.serves, turn.since = fd, connection, _monotonic()
            if connection is None:
                self._wait(turn)
                continue
            goes_on = connection.serve_now()
            turn.n_alone = turn.n_alone + 1 if connection is turn.last else 0
            turn.last = connection
            with self._lock:
                turn.since = 0.0
                if self._turn is turn:
                    if goes_on and connection.average_s < LEAVES_S and turn.n_alone < _ALONE:
                        continue
                    self._forget(turn)
            if goes_on and turn.n_alone >= _ALONE:
                self.release()  # so that the calm, in which it is served best, is seen
                self._core.pool.submit(connection)
            elif goes_on:
                self._core.poller.park(connection)

    def _wait(self, turn: MultiplexerTurn) -> None:
        """Waits until some can be read; ends the turn when nothing has come for a while."""
        epoll, events = self._epoll, []
        turn.is_waiting = True
        try:
            if epoll is not None and self._connections:
                events = epoll.poll(LINGER_S)
        except (OSError, ValueError):
            return  # it was released meanwhile
        finally:
            turn.is_waiting = False
        with self._lock:
            if self._turn is not turn:
                return
            for fd, _ in events:
                if (connection := self._connections.get(fd)) is not None:
                    self._ready.append((fd, connection))
        if not events:
            self.release()

    def _forget(self, turn: MultiplexerTurn) -> None:
        """Forgets the connection that it serves. With the lock."""
        fd = turn.fd
        if self._connections.get(fd) is not turn.serves:
            return  # that one is closed, and another one has got its descriptor
        del self._connections[fd]
        if self._epoll is not None:
            with contextlib.suppress(OSError, ValueError):  # it is closed already
                self._epoll.unregister(fd)


class MultiplexerTurn(Job):
    """The right to serve them. The newest one has it."""

    caller = "several"

    def __init__(self, multiplexer: Multiplexer) -> None:
        self._multiplexer = multiplexer
        self.fd = -1  # of the connection that is served
        self.serves: SerialConnection | None = None  # it, since:
        self.since = 0.0  # or 0, when none is
        self.last: SerialConnection | None = None
        self.n_alone = 0  # of its calls, in a row
        self._seen_since = 0.0

    def run(self) -> None:
        self._multiplexer.serve(self)

    def seems_blocked(self) -> bool:
        """At the last check it served this very call already."""
        seen, self._seen_since = self._seen_since, self.since
        return bool(seen) and seen == self.since
