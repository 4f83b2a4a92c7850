"""Where connections wait while nobody calls: one selector for all of them.

Only the leader of the thread pool is ever inside `poll`; any thread may park a connection or wake
the leader. A connection that becomes readable leaves the selector until it is parked again, so
that exactly one thread serves it. One that has something to say although its socket is silent (TLS
has decrypted more than was asked for) does not even enter.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier.carriers.sockets import Listener, Socket, has_pending
from launchpad.courier.servers.pool import Job
from launchpad.courier.watching.log import warn

_LOOK_S = 1.0  # how often a listener's address is looked at
_REST_S = 0.05  # for a listener that can't accept, because there are no descriptors left


class Parked(Protocol):
    """A connection that waits for its next bytes. `expires_at` bounds how long (inf: for ever)."""

    sock: Socket
    events: int  # for which it waits, as selectors call them
    expires_at: float

    def take_job(self) -> Job: ...

    def close(self) -> None: ...


class Poller:
    """Accepts connections from a listener and watches the parked ones.

    Args:
        listeners: whose sockets are non-blocking and listening.
        welcome: makes a parked connection of an accepted socket.
    """

    def __init__(self, listeners: Sequence[Listener], welcome: Callable[[Socket], Parked]) -> None:
        self._selector = selectors.DefaultSelector()
        self._welcome = welcome
        self._lock = threading.Lock()
        self._expiring: set[Parked] = set()
        self._ready: deque[Parked] = deque()
        self._resting: dict[Listener, float] = {}  # until when
        self._is_closed = False
        self._ears, self._bell = socket.socketpair()
        self._has_rung = False
        self._ears.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._ears, selectors.EVENT_READ)
        self._listeners = tuple(listeners)
        self._look_at = time.monotonic() + _LOOK_S
        self._lost: set[Listener] = set()  # and could not be published again
        for listener in self._listeners:
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def poll(self, timeout_s: float | None) -> list[Job]:
        """Jobs of the connections that have become readable."""
        jobs = []
        for key, _ in self._selector.select(self._limit(timeout_s)):
            if key.fileobj is self._ears:
                self._drain_bell()
            elif key.data in self._listeners:
                self._accept(key.data)
            elif self._unpark(key.data):
                jobs.append(key.data.take_job())
        while self._ready:
            jobs.append(self._ready.popleft().take_job())
        if self._expiring:
            self._expire()
        if self._resting:
            self._end_rests()
        if self._listeners and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            self._look_for_thieves()
        return jobs

    def park(self, parked: Parked) -> None:
        """Waits for the next bytes of this connection; closes it if we are closed."""
        if self._enter(parked):
            if self._ready or parked.expires_at != float("inf"):
                self.wake()  # the leader may be asleep without a limit
        else:
            parked.close()

    def wake(self) -> None:
        """Makes `poll` return, and see what was done before this. From any thread."""
        if self._has_rung:
            return
        self._has_rung = True
        try:
            self._bell.send(b"!")
        except OSError:
            pass  # full: it is awake already; closed: so are we
        except BaseException:  # whoever rings may be interrupted
            self._has_rung = False
            raise

    def stop_accepting(self) -> None:
        """No new connections; the listeners themselves are the owner's to close."""
        with self._lock:
            listeners, self._listeners = self._listeners, ()
            for listener in listeners:
                if self._resting.pop(listener, None) is None:
                    self._selector.unregister(listener.sock)

    def close(self) -> None:
        """Closes the selector and every connection parked in it. The leader must have left."""
        with self._lock:
            self._is_closed = True
            parked = [key.data for key in self._selector.get_map().values() if key.data]
            parked += self._ready
            self._selector.close()
        for connection in parked:
            connection.close()
        self._ears.close()
        self._bell.close()

    def drop_inherited(self) -> None:
        """For a forked child. Nothing is unregistered: the selector is the parent's too."""
        self._selector.close()
        self._ears.close()
        self._bell.close()
        for listener in self._listeners:
            listener.sock.close()

    def _limit(self, timeout_s: float | None) -> float | None:
        """How long to sleep at most, with what is to be looked after meanwhile."""
        limits = [
            0.0 if self._ready else None,
            _REST_S if self._resting else None,
            0.5 if self._expiring else None,
            _LOOK_S if self._listeners else None,
            timeout_s,
        ]
        return min([limit for limit in limits if limit is not None], default=None)

    def _enter(self, parked: Parked) -> bool:
        """False when it can't, because we are closed or the system has no room for it."""
        with self._lock:
            if self._is_closed:
                return False
            if has_pending(parked.sock):
                self._ready.append(parked)
                return True
            try:
                self._selector.register(parked.sock, parked.events, parked)
            except OSError:
                return False
            if parked.expires_at != float("inf"):
                self._expiring.add(parked)
            return True

    def _drain_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._ears.recv(4096)) == 4096:
                pass
        # Last: who has not rung because of this finds us awake, and about to look around.
        self._has_rung = False

    def _accept(self, listener: Listener) -> None:
        try:
            sock = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError | ConnectionError):
                self._rest(listener)  # out of descriptors: it would be readable again at once
            return
        self.park(self._welcome(sock))

    def _rest(self, listener: Listener) -> None:
        """Looks away from it for a while; who has come waits in the system's backlog."""
        with self._lock:
            if listener in self._listeners:
                self._selector.unregister(listener.sock)
                self._resting[listener] = time.monotonic() + _REST_S

    def _end_rests(self) -> None:
        now = time.monotonic()
        with self._lock:
            for listener in [each for each, until in self._resting.items() if until <= now]:
                del self._resting[listener]
                self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def _look_for_thieves(self) -> None:
        """A cleaner of old files or a careless person may have removed a socket that is in use."""
        for listener in self._listeners:
            if listener not in self._resting and listener.is_lost:
                self._publish_again(listener)

    def _publish_again(self, listener: Listener) -> None:
        with self._lock:
            if listener not in self._listeners:
                return
            self._selector.unregister(listener.sock)
            taken = f"the socket at {listener.address} was taken away"
            try:
                listener.publish_again()
            except OSError as error:
                if listener not in self._lost:
                    self._lost.add(listener)
                    warn(f"{taken}, and new clients do not find this server: {error}")
            else:
                self._lost.discard(listener)
                warn(f"{taken}; it is back")
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def _unpark(self, parked: Parked) -> bool:
        with self._lock:
            self._expiring.discard(parked)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(parked.sock)
                return True
            return False

    def _expire(self) -> None:
        now = time.monotonic()
        for parked in [p for p in self._expiring if p.expires_at < now]:
            if self._unpark(parked):
                parked.close()
