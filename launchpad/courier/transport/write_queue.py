"""Frames on their way out of a connection that several threads write to.

    put ──▶ queue ──▶ batch ──▶ socket
                        │ what was not written in full when the connection ended
    next connection ◀───┘

1. The thread that holds the lock writes, many frames with one system call. Others add theirs and return.
2. The chunks of a frame stay together: they are put in one step, and written in order.
3. Calls and results that are small enough wait as they are, and are encoded when they are written: those
   that then stand next to each other share a frame (protocol/joined.py).
4. A frame of which it matters whether it was sent is put as a `TrackedFrame`. It may be put while there is
   no connection. When a connection ends, those that were not written in full, and therefore have not run,
   go out over the next one.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport.quick_io import QuickIO
from launchpad.courier.transport.stream_socket import (
    MAX_GATHER,
    NO_SIGNAL,
    SEND_NOW,
    Socket,
    skip_sent,
)

_BATCH_BYTES = 64 << 10  # in one write, but for the last frame
# Chunks that are smaller on average are joined: a copy costs less than a long list.
_COPY_BYTES = 16 << 10
_CHUNK_TYPES = frozenset([bytes, bytearray, memoryview])
_COUNTED_TYPES = _CHUNK_TYPES | {tuple}
_TUPLE_BYTES = 256  # with what it refers to


class TrackedFrame(Protocol):
    """A frame that knows whether it was sent."""

    # b"" if it shall not be sent any more; a tuple is for `join` to encode.
    frame: bytes | list[Chunk] | tuple[Any, ...]
    is_sent: bool  # True before the first byte leaves


#: Encodes the first of some calls or results as one frame, with as many as it takes from the left of the
#: queue; returns also those of them that are tracked.
Join = Callable[[Any, deque[Any]], tuple[bytes, Sequence[TrackedFrame]]]


class WriteQueue:
    """The writing side of a connection, or of one connection after the other. Safe from any thread.

    Example:
        queue = WriteQueue(sock)
        queue.put_chunks(framing.encode(framing.ITEM, 0, b"", body, views))
        while not queue.flush_all():
            queue.wait_until_writable(1.0)

    Args:
        sock: None until `connect`.
        most_bytes: when so much is waiting for a peer that does not read, threads that flush wait, too.
        join: encodes what is put as a tuple, or as a tracked frame that is one.
    """

    def __init__(
        self,
        sock: Socket | None = None,
        most_bytes: int | None = None,
        join: Join | None = None,
    ) -> None:
        self._sock = sock
        self._io = None if sock is None else QuickIO(sock)
        self._most_bytes = most_bytes
        self._join = join
        self._queue: deque[Chunk | TrackedFrame | tuple[Any, ...]] = deque()
        self._lock = threading.Lock()  # the thread that holds it writes
        self._rest: list[memoryview] = []  # of the batch
        self._tracked: list[tuple[int, TrackedFrame]] = []  # of the batch, each with where it ends
        self._n_written = 0  # bytes of the batch
        self._has_failed = False
        self.has_written = False  # a frame to this connection, in full
        #: Adds a frame of one chunk, or a tracked one. Never blocks.
        self.put = self._queue.append
        #: Adds the chunks of one frame; no other comes between them. Never blocks.
        self.put_chunks = self._queue.extend

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_connected(self) -> bool:
        return self._sock is not None and not self._has_failed

    def connect(self, sock: Socket) -> None:
        """From now on frames go there."""
        with self._lock:
            self._sock, self._io = sock, QuickIO(sock)
            self._has_failed = self.has_written = False

    def disconnect(self) -> None:
        """Takes back tracked frames that were not written in full. When it returns, no thread writes."""
        with self._lock:
            self._sock = None
            unsent = [frame for end, frame in self._tracked if end > self._n_written]
            for frame in unsent:
                frame.is_sent = False
            self._queue.extendleft(reversed(unsent))
            self._rest, self._tracked = [], []

    def close(self, *, is_last_write: bool = False) -> bool:
        """Writes no more, whatever is put; True when nothing was left.

        With `is_last_write`, what is left is written first, if the peer still reads.
        """
        with self._lock:
            if is_last_write:
                with contextlib.suppress(OSError):
                    while (self._queue or self._rest) and self._sock is not None:
                        self._write(self._sock, NO_SIGNAL)
            is_clean = self._sock is None or not (self._queue or self._rest)
            self._sock = None
            self._queue.clear()
            self._rest.clear()
            return is_clean

    def drop_inherited(self) -> None:
        """For a forked child, in which the lock may be held for ever."""
        if self._sock is not None:
            self._sock.close()

    def flush(self, *, wait: bool = True) -> bool:
        """Writes until nothing is left, or another thread is at it. Raises OSError.

        False when the socket takes no more now, and `wait` is False.
        """
        lock, flags = self._lock, NO_SIGNAL if wait else SEND_NOW
        while (self._queue or self._rest) and self._sock is not None:
            if not lock.acquire(blocking=False):
                # Another thread writes. This one waits for it only when too much is waiting already.
                if self._most_bytes is None:
                    return True
                waiting: list[Any] = list(self._queue)
                size = sum(
                    _TUPLE_BYTES if type(each) is tuple else len(each)
                    for each in waiting
                    if type(each) in _COUNTED_TYPES
                )
                if size <= self._most_bytes:
                    return True
                lock.acquire()
            try:
                if self._sock is not None and (self._queue or self._rest):  # still
                    self._write(self._sock, flags)
            except BlockingIOError:
                return False
            finally:
                lock.release()
        return True

    def flush_all(self) -> bool:
        """Writes what the socket takes now; True when all that was put before has been written.

        Raises OSError. Not for a queue that other threads `flush`: it would have to wait for them.
        """
        with self._lock:
            try:
                while (self._queue or self._rest) and self._sock is not None:
                    self._write(self._sock, SEND_NOW)
                return True
            except BlockingIOError:
                return False

    def wait_until_writable(self, timeout_s: float) -> bool:
        """Waits until the socket takes more or the connection has ended; False if neither came."""
        sock = self._sock
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile: a flush will know
            poller = select.poll()
            if sock is not None:
                poller.register(sock, select.POLLOUT)
                return bool(poller.poll(timeout_s * 1000))
        return True

    def _write(self, sock: Socket, flags: int) -> None:
        """Writes what the socket takes of the batch, or of the next one. The lock is held."""
        rest = self._rest
        if not rest:
            queue, take, size = self._queue, self._queue.popleft, 0
            chunks: list[Chunk] = []
            self._tracked = tracked = []
            self._n_written = 0
            while queue and size < _BATCH_BYTES:
                each: Any = take()
                if type(each) in _CHUNK_TYPES:
                    chunks.append(each)
                    size += len(each)
                    continue
                frame = each if type(each) is tuple else each.frame
                if type(frame) is tuple:
                    assert self._join is not None
                    frame, joined = self._join(each, queue)
                    chunks.append(frame)
                    size += len(frame)
                    tracked += [(size, each) for each in joined]
                    continue
                each.is_sent = True
                frame = each.frame
                if type(frame) is bytes:
                    chunks.append(frame)
                    size += len(frame)
                else:
                    chunks += frame
                    size += sum(map(len, frame))
                tracked.append((size, each))
            if size <= min(2 * _BATCH_BYTES, _COPY_BYTES * len(chunks)):
                data = b"".join(chunks)
                n = 0
                if self._io is not None and (n := self._io.try_send(data)) == size:
                    self.has_written = True
                    self._tracked = []
                    return
                self._n_written = n
                chunks = [data[n:]]
            self._rest = rest = [memoryview(chunk) for chunk in chunks]
        try:
            n = (
                sock.sendmsg(rest[:MAX_GATHER], (), flags)
                if rest[1:]
                else sock.send(rest[0], flags)
            )
        except OSError as error:
            self._has_failed |= not isinstance(error, BlockingIOError)
            raise
        self._n_written += n
        skip_sent(rest, n)
        # Of a frame that was cut short the peer has nothing: a call is not made again and again for it.
        if not rest or (self._tracked and self._tracked[0][0] <= self._n_written):
            self.has_written = True
        if not rest:
            self._tracked = []
