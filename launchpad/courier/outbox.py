"""Frames on their way out of a connection that many threads write to.

Whoever finds nobody writing writes everything there is, in one gathered system call; the others
leave their frames and go. The outbox knows at any time which frames have not been written in full:
those have not run, and may be sent again over another connection.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Sequence

from launchpad.courier.carriers.sockets import NO_SIGNAL, skip_sent
from launchpad.courier.wire import Chunk

_MAX_FRAMES = 256  # in one write
_MAX_GATHER = 1024


class Outbox:
    """A queue of frames by call id. `put` never blocks; `flush` may, unless told not to."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Sequence[Chunk]]] = deque()
        self._lock = threading.Lock()  # who holds it writes
        self._batch: deque[tuple[int, Sequence[Chunk]]] = deque()  # begun, not written in full
        self._ends: deque[int] = deque()  # for each of them, where it ends in the batch
        self._rest: list[memoryview] = []
        self._written = 0

    @property
    def is_empty(self) -> bool:
        return not self._queue and not self._rest

    def put(self, call_id: int, chunks: Sequence[Chunk]) -> None:
        self._queue.append((call_id, chunks))

    def flush(self, sock: socket.socket, *, wait: bool = True) -> None:
        """Writes until nothing is left, or another thread is at it.

        Raises OSError when the connection has ended; BlockingIOError when it takes no more now and
        `wait` is False.
        """
        flags = NO_SIGNAL if wait else NO_SIGNAL | socket.MSG_DONTWAIT
        while (self._queue or self._rest) and self._lock.acquire(blocking=False):
            try:
                if not self._rest:
                    self._load()
                if self._rest:
                    self._write(sock, flags)
            finally:
                self._lock.release()

    def take_unsent(self) -> list[tuple[int, Sequence[Chunk]]]:
        """Empties it; returns what was not written in full. For when the connection has ended."""
        with self._lock:
            unsent = [*self._batch, *self._queue]
            self._batch.clear()
            self._ends.clear()
            self._rest.clear()
            self._queue.clear()
            return unsent

    def _load(self) -> None:
        end = 0
        chunks: list[Chunk] = []
        self._written = 0
        while self._queue and len(self._batch) < _MAX_FRAMES and len(chunks) < _MAX_GATHER:
            frame = self._queue.popleft()
            chunks += frame[1]
            end += sum(len(chunk) for chunk in frame[1])
            self._batch.append(frame)
            self._ends.append(end)
        if end < 64 << 10 and len(chunks) > 1:
            chunks = [b"".join(chunks)]
        self._rest = [memoryview(chunk) for chunk in chunks if len(chunk)]

    def _write(self, sock: socket.socket, flags: int) -> None:
        n = sock.sendmsg(self._rest[:_MAX_GATHER], (), flags)
        self._written += n
        skip_sent(self._rest, n)
        while self._ends and self._ends[0] <= self._written:
            self._ends.popleft()
            self._batch.popleft()
