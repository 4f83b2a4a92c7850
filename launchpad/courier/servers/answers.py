"""Answers on their way out of a connection on which many threads answer."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.protocol.wire import Chunk

_JOIN_UP_TO = 4096  # bytes; larger chunks are sent from where they are
_MAX_WAITING = 4 << 20  # bytes for a client that does not read: from here on threads wait for it


class Answers:
    """A queue of frames, written many at a time. `put` never blocks, `flush` may. For any thread."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._queue: deque[Chunk] = deque()
        self._lock = threading.Lock()  # who holds it writes
        self.put = self._queue.append  # a frame

    def put_chunks(self, chunks: Sequence[Chunk]) -> None:
        """One frame in parts, which stay together."""
        self._queue.extend(chunks)

    def flush(self) -> None:
        """Writes all there is, unless another thread is at it, who will. Raises OSError."""
        lock = self._lock
        while self._queue and (lock.acquire(blocking=False) or self._wait_for_room()):
            try:
                self._write()
            finally:
                lock.release()

    def finish(self, close: Callable[[], None]) -> None:
        """Writes what is left, unless nobody reads it any more; then calls `close()`."""
        with self._lock:
            with contextlib.suppress(OSError):
                while self._queue:
                    self._write()
            close()

    def _wait_for_room(self) -> bool:
        """Takes the lock, if so much is waiting that whoever answers has to wait, too."""
        is_much = sum(map(len, list(self._queue))) > _MAX_WAITING
        return is_much and self._lock.acquire()

    def _write(self) -> None:
        queue = self._queue
        chunks = [queue.popleft() for _ in range(len(queue))]
        if all([len(chunk) < _JOIN_UP_TO for chunk in chunks]):  # noqa: C419 - a generator costs more
            chunks = [b"".join(chunks)]
        sockets.send_all(self._sock, chunks)
