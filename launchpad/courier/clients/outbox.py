"""Frames on their way out, over one connection after the other.

Whoever finds nobody writing writes what there is, many frames with one system call; the others leave
their frames and go. The outbox knows at any time which frames have not been written in full: those
have not run, and go out over the next connection.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from launchpad.courier.carriers.sockets import MAX_GATHER, NO_SIGNAL, Socket, skip_sent
from launchpad.courier.protocol.wire import MAX_BYTES, Chunk

_BATCH_BYTES = 64 << 10  # in one write, but for the last frame


class Outgoing(Protocol):
    """Something to be sent."""

    frame: bytes | Sequence[Chunk]  # b"" if it shall not be sent any more
    is_sent: bool  # True before the first byte leaves


class Notice:
    """A frame to which there is no answer."""

    __slots__ = ("frame", "is_sent")

    def __init__(self, frame: bytes) -> None:
        self.frame: bytes | Sequence[Chunk] = frame
        self.is_sent = False


class Outbox:
    """A queue of frames, for any thread. `put` never blocks; `flush` may, unless told not to."""

    def __init__(self) -> None:
        self._queue: deque[Outgoing] = deque()
        self._lock = threading.Lock()  # who holds it writes
        self._sock: Socket | None = None
        self._batch: list[Outgoing] = []  # begun, and not written in full
        self._sizes: list[int] = []  # of the frames of the batch
        self._rest: list[memoryview] = []  # of their bytes
        self._n_written = 0
        self.put = self._queue.append
        self.has_written = False  # anything to this connection
        self.max_bytes = MAX_BYTES  # that the other side takes at once

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_connected(self) -> bool:
        return self._sock is not None

    def connect(self, sock: Socket) -> None:
        """From now on frames go there."""
        with self._lock:
            self._sock = sock
            self.has_written = False

    def stop(self) -> None:
        """From now on frames stay here, but for the one that has been begun."""
        with self._lock:
            self._sock = None

    def disconnect(self) -> None:
        """Takes back what has not been written in full. When it returns, nobody writes any more."""
        with self._lock:
            self._sock = None
            self._queue.extendleft(reversed(self._take_back()))

    def flush(self, *, wait: bool = True) -> bool:
        """Writes until nothing is left, or another thread is at it.

        False when the socket takes no more now, and `wait` is False.
        """
        while (self._queue or self._rest) and self._sock and self._lock.acquire(blocking=False):
            try:
                if self._sock:
                    self._write(self._sock, NO_SIGNAL if wait else NO_SIGNAL | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                # A server that stops reads no more, but may still answer. Who reads sees the end.
                self._sock = None
            finally:
                self._lock.release()
        return True

    def drop_inherited(self) -> None:
        """For a forked child, in which the lock may be held for ever."""
        if self._sock is not None:
            self._sock.close()

    # The rest is called with the lock held.

    def _write(self, sock: Socket, flags: int) -> None:
        rest = self._rest or self._load()
        n = (
            sock.send(rest[0], flags)
            if len(rest) == 1
            else sock.sendmsg(rest[:MAX_GATHER], (), flags)
        )
        self.has_written = True
        self._n_written += n
        skip_sent(rest, n)
        if not rest:
            self._begin([], [], [])

    def _load(self) -> list[memoryview]:
        """The bytes of the next batch."""
        batch: list[Outgoing] = []
        sizes: list[int] = []
        chunks: list[Chunk] = []
        size = 0
        while self._queue and size < _BATCH_BYTES:
            each = self._queue.popleft()
            each.is_sent = True
            frame = each.frame
            if isinstance(frame, bytes):
                chunks.append(frame)
                size += len(frame)
                sizes.append(len(frame))
            else:
                chunks += frame
                sizes.append(sum(map(len, frame)))
                size += sizes[-1]
            batch.append(each)
        if size < 2 * _BATCH_BYTES:
            chunks = [b"".join(chunks)]
        self._begin(batch, sizes, [memoryview(chunk) for chunk in chunks])
        return self._rest

    def _begin(self, batch: list[Outgoing], sizes: list[int], rest: list[memoryview]) -> None:
        self._batch, self._sizes, self._rest = batch, sizes, rest
        self._n_written = 0

    def _take_back(self) -> list[Outgoing]:
        unsent, end = [], 0
        for each, size in zip(self._batch, self._sizes, strict=True):
            end += size
            if end > self._n_written:
                each.is_sent = False
                unsent.append(each)
        self._begin([], [], [])
        return unsent
