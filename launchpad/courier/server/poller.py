"""The poller, in which connections wait for their next call. It is one selector for all connections.

Only the leader of the thread pool calls `poll`. Any thread may park a connection or wake the leader. A
connection that becomes readable leaves the selector until it is parked again, so that exactly one thread
serves it. If TLS has decrypted more than was read, a connection has data although its socket is not
readable. Such a connection never enters the selector.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from launchpad.courier import log
from launchpad.courier.interruptions import Lock
from launchpad.courier.server.strangers import strangers
from launchpad.courier.server.thread_pool import Job
from launchpad.courier.transport.stream_socket import (
    Listener,
    Socket,
    WakeupSocketpair,
    has_pending,
)

_POLL_S = 1.0  # how often a listener's socket file is checked
# The pause of a listener that can't accept, because no descriptors are left or there are too many strangers.
_ACCEPT_PAUSE_S = 0.05


class Parked(Protocol):
    """A connection that waits for its next bytes, as the poller sees it: a ServerConnection.

    Attributes:
        expires_at: The time by `time.monotonic()` at which the poller closes the connection if nothing came.
        events: The events of `selectors` that the connection waits for.
    """

    sock: Socket
    expires_at: float
    events: int

    def take_job(self) -> Job: ...

    def close(self) -> None: ...


class Poller:
    """A selector that accepts connections from listeners and watches the parked ones.

    Args:
        make_connection: makes a connection from an accepted socket. The poller parks the connection.
    """

    def __init__(self, make_connection: Callable[[Socket], Parked]) -> None:
        self._selector = selectors.DefaultSelector()
        self._make_connection = make_connection
        # This lock is held to change what the selector watches. `park` must not register a connection after
        # `close` has closed the others, and a listener must not be paused after `stop_accepting`.
        self._lock = Lock()
        self._expiring: set[Parked] = set()
        self._ready: deque[Parked] = deque()
        self._paused: dict[Listener, float] = {}  # when the pause ends
        self._has_refused: set[Listener] = set()
        self._is_closed = False
        self._wakeup = WakeupSocketpair()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        # Makes `poll` return, so that the next `poll` takes changes into account. Thread-safe.
        self.wake = self._wakeup.wake
        self._listeners: tuple[Listener, ...] = ()
        self._check_at = time.monotonic() + _POLL_S
        self._lost: set[Listener] = set()  # their socket file is gone and could not be made again

    def listen(self, listener: Listener) -> None:
        """Accept the clients of this listener. Call it before the first `poll`."""
        self._selector.register(listener.sock, selectors.EVENT_READ, listener)
        self._listeners += (listener,)

    def poll(self, timeout_s: float | None) -> list[Job]:
        """Wait for events, and return the jobs of the connections that have become readable."""
        limits = [
            0.0 if self._ready else None,
            _ACCEPT_PAUSE_S if self._paused else None,
            0.5 if self._expiring else None,
            _POLL_S if self._listeners else None,
            timeout_s,
        ]
        limit = min([limit_s for limit_s in limits if limit_s is not None], default=None)
        jobs = []
        for key, _ in self._selector.select(limit):
            if key.fileobj is self._wakeup:
                self._wakeup.drain()
            elif key.data in self._listeners:
                self._accept(key.data)
            elif self.unpark(key.data):
                jobs.append(key.data.take_job())
        while self._ready:
            jobs.append(self._ready.popleft().take_job())
        now = time.monotonic()
        for parked in tuple(self._expiring):
            if parked.expires_at < now and self.unpark(parked):
                parked.close()
        if self._paused:
            with self._lock:
                for listener, until in tuple(self._paused.items()):
                    if until <= now:
                        del self._paused[listener]
                        self._selector.register(listener.sock, selectors.EVENT_READ, listener)
        if self._listeners and now >= self._check_at:
            self._check_at = now + _POLL_S
            for listener in self._listeners:
                if listener not in self._paused and listener.is_lost:
                    self._republish(listener)
        return jobs

    def park(self, parked: Parked) -> None:
        """Wait for the next bytes of this connection, until its `expires_at`.

        Closes the connection if the poller is closed, or if the system has no room for it.
        """
        must_wake = parked.expires_at != float("inf")
        with self._lock:
            can_wait = not self._is_closed
            if can_wait and has_pending(parked.sock):
                self._ready.append(parked)
            elif can_wait:
                try:
                    self._selector.register(parked.sock, parked.events, parked)
                except OSError:
                    can_wait = False
                else:
                    if must_wake:
                        self._expiring.add(parked)
        if not can_wait:
            parked.close()
        elif self._ready or must_wake:
            self.wake()  # the leader may be waiting without a time limit

    def stop_accepting(self) -> None:
        """Accept no new connections. After this the owner may close the listeners."""
        with self._lock:
            listeners = self._listeners
            self._listeners = ()
            for listener in listeners:
                if self._paused.pop(listener, None) is None:
                    self._selector.unregister(listener.sock)

    def close(self) -> None:
        """Close the selector and every connection parked in it. The leader must have left `poll`."""
        with self._lock:
            self._is_closed = True
            parked = [key.data for key in self._selector.get_map().values() if key.data]
            parked += self._ready
            self._selector.close()
        for connection in parked:
            connection.close()
        self._wakeup.close()

    def drop_inherited(self) -> None:
        """Close the sockets in a forked child. Unregister nothing, because the parent shares the selector."""
        self._selector.close()
        self._wakeup.drop_inherited()
        for listener in self._listeners:
            listener.sock.close()

    def _accept(self, listener: Listener) -> None:
        if not strangers.make_room():
            self._pause(listener)
            return
        try:
            sock = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:  # the process is out of descriptors
            strangers.drop_oldest()
            self._pause(listener)
            if listener not in self._has_refused:
                self._has_refused.add(listener)
                log.warning(
                    f"the server at {listener.address} takes no new clients for now, and they wait: {error}."
                    " If the limit on open files is the cause, raise it (ulimit -n)"
                )
            return
        if strangers.takes_reserve(sock):
            strangers.drop_oldest()
        self.park(self._make_connection(sock))

    def _pause(self, listener: Listener) -> None:
        """Stop watching the listener for a while, because it would be readable again at once.

        During the pause, clients wait in the system's backlog.
        """
        with self._lock:
            if listener in self._listeners:
                self._selector.unregister(listener.sock)
                self._paused[listener] = time.monotonic() + _ACCEPT_PAUSE_S

    def _republish(self, listener: Listener) -> None:
        """Make the listener's socket file again, and warn.

        A cleaner of old files, or a user by mistake, may have removed the file while it is in use.
        """
        with self._lock:
            if listener not in self._listeners:
                return
            self._selector.unregister(listener.sock)
            problem = f"the socket at {listener.address} was taken away"
            try:
                listener.republish()
            except OSError as error:
                if listener not in self._lost:
                    self._lost.add(listener)
                    log.warning(f"{problem}, and new clients do not find this server: {error}")
            else:
                self._lost.discard(listener)
                log.warning(f"{problem}; it is back")
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def unpark(self, parked: Parked) -> bool:
        """Stop waiting for this connection. Return False if it wasn't parked.

        If several threads call this, only one gets True. The connection then belongs to that thread.
        """
        with self._lock:
            self._expiring.discard(parked)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(parked.sock)
                return True
            return False
