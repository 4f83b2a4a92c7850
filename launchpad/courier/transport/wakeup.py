"""Wakes a thread that waits in `poll` or `select`."""

from __future__ import annotations

import contextlib
import socket
import threading


class WakeupSocketpair:
    """Any thread wakes the one that polls this like a socket, and then drains it.

    Example:
        poller.register(wakeup, select.POLLIN)
        poller.poll()       # returns when another thread calls wakeup.wake()
        wakeup.drain()      # first; then looks at what the other thread has done
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_awake = False
        self._lock = (
            threading.Lock()
        )  # a descriptor is not closed while another thread writes to it

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Never blocks. Does nothing once it is closed."""
        if self._is_awake:
            return
        self._is_awake = True
        try:
            with self._lock:
                self._writer.send(b"!")
        except OSError:
            pass  # full, or closed
        except BaseException:  # an interrupted thread
            self._is_awake = False
            raise

    def drain(self) -> None:
        """Until the next `wake`, there is nothing to read."""
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        # Last: a thread that wakes in vain until here has done before what we are about to look at.
        self._is_awake = False

    def close(self) -> None:
        with self._lock:
            self.drop_inherited()

    def drop_inherited(self) -> None:
        """For a forked child, in which the lock may be held for ever."""
        self._reader.close()
        self._writer.close()
