"""Where connections wait while nobody calls: one selector for all of them.

Only the leader of the thread pool is ever inside `poll`; any thread may park a connection or wake
the leader. A connection that becomes readable leaves the selector until it is parked again, so
that exactly one thread serves it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier.carriers.sockets import Listener
from launchpad.courier.pool import Job


class Parked(Protocol):
    """A connection that waits for its next bytes. `expires_at` bounds how long (inf: for ever)."""

    sock: socket.socket
    expires_at: float

    def take_job(self) -> Job: ...

    def close(self) -> None: ...


class Poller:
    """Accepts connections from a listener and watches the parked ones.

    Args:
        listeners: whose sockets are non-blocking and listening.
        welcome: makes a parked connection of an accepted socket.
    """

    def __init__(
        self, listeners: Sequence[Listener], welcome: Callable[[socket.socket], Parked]
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._welcome = welcome
        self._lock = threading.Lock()
        self._expiring: set[Parked] = set()
        self._is_closed = False
        self._ears, self._bell = socket.socketpair()
        self._ears.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._ears, selectors.EVENT_READ)
        self._listeners = tuple(listeners)
        for listener in self._listeners:
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)

    def poll(self, timeout_s: float | None) -> list[Job]:
        """Jobs of the connections that have become readable."""
        if self._expiring:
            timeout_s = 0.5 if timeout_s is None else min(timeout_s, 0.5)
        jobs = []
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._ears:
                self._drain_bell()
            elif key.data in self._listeners:
                self._accept(key.data)
            elif self._unpark(key.data):
                jobs.append(key.data.take_job())
        if self._expiring:
            self._expire()
        return jobs

    def park(self, parked: Parked) -> None:
        """Waits for the next bytes of this connection; closes it if we are closed."""
        expires = parked.expires_at != float("inf")
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._selector.register(parked.sock, selectors.EVENT_READ, parked)
                if expires:
                    self._expiring.add(parked)
        if is_closed:
            parked.close()
        elif expires:
            self.wake()  # the leader may be asleep without a limit

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already; closed: so are we
            self._bell.send(b"!")

    def stop_accepting(self) -> None:
        """No new connections; the listeners themselves are the owner's to close."""
        with self._lock:
            listeners, self._listeners = self._listeners, ()
            for listener in listeners:
                self._selector.unregister(listener.sock)

    def close(self) -> None:
        """Closes the selector and every connection parked in it. The leader must have left."""
        with self._lock:
            self._is_closed = True
            parked = [key.data for key in self._selector.get_map().values() if key.data]
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

    def _drain_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._ears.recv(4096)) == 4096:
                pass

    def _accept(self, listener: Listener) -> None:
        try:
            sock = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError | ConnectionError):
                time.sleep(0.02)  # out of descriptors: it will be readable again at once
            return
        self.park(self._welcome(sock))

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
