"""Wakes a thread that waits in `poll`."""

from __future__ import annotations

import contextlib
import socket
import threading


class Bell:
    """Any thread rings it; the one that waits polls it like a socket, and silences it.

    Example:
        poller.register(bell, select.POLLIN)
        poller.poll()       # returns when another thread calls bell.ring()
        bell.silence()
    """

    def __init__(self) -> None:
        self._ears, self._clapper = socket.socketpair()
        self._ears.setblocking(False)
        self._clapper.setblocking(False)
        self._lock = threading.Lock()  # nobody closes a descriptor that another thread writes to

    def fileno(self) -> int:
        return self._ears.fileno()

    def ring(self) -> None:
        """Never blocks. Does nothing once it is closed."""
        with self._lock, contextlib.suppress(OSError):  # full: it is loud enough
            self._clapper.send(b"!")

    def silence(self) -> None:
        """Until it is rung again."""
        with contextlib.suppress(BlockingIOError):
            while len(self._ears.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        with self._lock:
            self.drop_inherited()

    def drop_inherited(self) -> None:
        """For a forked child, in which the lock may be held for ever."""
        self._ears.close()
        self._clapper.close()
