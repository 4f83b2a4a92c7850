"""Frames on their way out of a connection that several threads write to.

    put ──▶ queue ──▶ batch ──▶ socket
                        │ what was not written in full when the connection ended
    next connection ◀───┘

1. The thread that holds the lock writes, many frames with one system call. Others add theirs and return.
2. The chunks of a frame stay together: they are put in one step, and written in order.
3. Calls and results that are small enough wait as they are, and are encoded when they are written: those
   that then stand next to each other share a frame (protocol/joined.py).
4. A thread may be interrupted anywhere (interruptions.py). What it has taken, written and not counted is kept
   here at each moment, and the next thread goes on with it.
5. A frame of which it matters whether it was sent is put as a `TrackedFrame`. It may be put while there is
   no connection. When a connection ends, those that were not written in full, and therefore have not run,
   go out over the next one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat, starmap
from typing import Any, Protocol

from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.transport.quick_io import QuickIO
from launchpad.courier.transport.stream_socket import (
    MAX_GATHER,
    NO_SIGNAL,
    SEND_NOW,
    Socket,
    left_after,
)

_BATCH_BYTES = 64 << 10  # in one write, but for the last frame
# Chunks that are smaller on average are joined: a copy costs less than a long list.
_COPY_BYTES = 16 << 10
_CHUNK_TYPES = frozenset([bytes, bytearray, memoryview])
_COUNTED_TYPES = _CHUNK_TYPES | {tuple}
_TUPLE_BYTES = 256  # with what it refers to
_TAKEN = 256  # entries of the queue at once
_TRY = (False,)  # arguments of `acquire`
_WAIT = (True,)


class TrackedFrame(Protocol):
    """A frame that knows whether it was sent."""

    # b"" if it shall not be sent any more; a tuple is for `join` to encode.
    frame: bytes | list[Chunk] | tuple[Any, ...]
    is_sent: bool  # True before the first byte leaves


#: Encodes some calls or results as one frame, from this index of the list on; returns also those of them that
#: are tracked, and the index of the first that is not in it.
Join = Callable[[Sequence[Any], int], tuple[bytes, Sequence[TrackedFrame], int]]


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
        self._lock = Lock()  # the thread that holds it writes
        self._taken: list[
            Chunk | TrackedFrame | tuple[Any, ...]
        ] = []  # from the queue, for a batch
        self._rest: Sequence[Chunk] = ()  # of the batch
        self._sent: list[int] = []  # bytes of the rest, that are not counted yet
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
    def is_empty(self) -> bool:
        """Nothing waits to be written."""
        return not (self._queue or self._rest or self._taken)

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
            if self._sent:
                self._count_sent()
            unsent: list[Any] = [frame for end, frame in self._tracked if end > self._n_written]
            # Those of a batch that a thread was making when it was interrupted may be marked, too.
            unsent += self._taken
            for frame in unsent:
                if type(frame) not in _COUNTED_TYPES:
                    frame.is_sent = False
            self._queue.extendleft(reversed(unsent))
            self._rest = ()
            self._tracked = []
            self._taken = []

    def close(self, *, is_last_write: bool = False) -> bool:
        """Writes no more, whatever is put; True when nothing was left.

        With `is_last_write`, what is left is written first, if the peer still reads.
        """
        with self._lock:
            if is_last_write:
                with contextlib.suppress(OSError):
                    while not self.is_empty and self._sock is not None:
                        self._write(self._sock, NO_SIGNAL)
            is_clean = self._sock is None or self.is_empty
            self._sock = None
            self._queue.clear()
            self._rest = ()
            self._taken = []
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
        while not self.is_empty and self._sock is not None:
            held: list[bool] = []
            try:
                held.extend(map(lock.acquire, _TRY))
                if not held[0]:
                    # Another thread writes. This one waits for it only when too much is waiting already.
                    if self._most_bytes is None or self._n_waiting() <= self._most_bytes:
                        return True
                    held.clear()
                    held.extend(map(lock.acquire, _WAIT))
                if self._sock is not None and not self.is_empty:  # still
                    self._write(self._sock, flags)
            except BlockingIOError:
                return False
            finally:
                # Without a call before it, so that nothing can be raised before the lock is released.
                if held and held[0]:
                    lock.release()
        return True

    def flush_all(self) -> bool:
        """Writes what the socket takes now; True when all that was put before has been written.

        Raises OSError. Not for a queue that other threads `flush`: it would have to wait for them.
        """
        with self._lock:
            try:
                while not self.is_empty and self._sock is not None:
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

    def _n_waiting(self) -> int:
        """Bytes, about."""
        waiting: list[Any] = [*self._taken, *self._queue]
        return sum(
            _TUPLE_BYTES if type(each) is tuple else len(each)
            for each in waiting
            if type(each) in _COUNTED_TYPES
        )

    # The lock is held.

    def _write(self, sock: Socket, flags: int) -> None:
        """Writes what the socket takes of the batch, or of the next one."""
        sent = self._sent
        try:
            if not (sent or self._rest):
                self._make_batch()
                rest = self._rest
                if len(rest) == 1 and self._io is not None:
                    self._io.try_send(rest[0], sent)
            rest = self._rest
            if rest and not sent:
                # The call that sends also keeps how much it was.
                if len(rest) > 1:
                    sent.extend(map(sock.sendmsg, (rest[:MAX_GATHER],), ((),), (flags,)))
                else:
                    sent.extend(map(sock.send, (rest[0],), (flags,)))
        except BaseException as error:
            if isinstance(error, OSError) and not is_interruption(error):
                self._has_failed |= not isinstance(error, BlockingIOError)
            elif type(sock) is not socket.socket and not sent:
                self._cut(sock)
            raise
        if sent:
            self._count_sent()

    def _make_batch(self) -> None:
        """Takes frames from the queue, and encodes as many as are written at once."""
        taken = self._taken
        if not taken:
            n = min(len(self._queue), _TAKEN)
            taken.extend(starmap(self._queue.popleft, repeat((), n)))
        chunks: list[Chunk] = []
        tracked: list[tuple[int, TrackedFrame]] = []
        at = size = 0
        while at < len(taken) and size < _BATCH_BYTES:
            each: Any = taken[at]
            if type(each) in _CHUNK_TYPES:
                chunks.append(each)
                size += len(each)
                at += 1
                continue
            frame = each if type(each) is tuple else each.frame
            if type(frame) is tuple:
                assert self._join is not None
                frame, joined, at = self._join(taken, at)
                chunks.append(frame)
                size += len(frame)
                tracked += [(size, each) for each in joined]
                continue
            # First: a thread that cancels it takes the frame, and then looks at this.
            each.is_sent = True
            frame = each.frame
            if type(frame) is bytes:
                chunks.append(frame)
                size += len(frame)
            else:
                chunks += frame
                size += sum(map(len, frame))
            tracked.append((size, each))
            at += 1
        rest: Sequence[Chunk] = ()
        if size <= min(2 * _BATCH_BYTES, _COPY_BYTES * len(chunks)):
            rest = (b"".join(chunks),) if size else ()
        else:
            rest = [chunk for chunk in chunks if len(chunk)]
        taken = taken[at:]
        # Nothing is called from here on.
        self._rest = rest
        self._tracked = tracked
        self._n_written = 0
        self._taken = taken

    def _count_sent(self) -> None:
        """Takes note of what the last send has written, maybe that of a thread that was interrupted."""
        n = max(0, self._sent[0])
        rest = left_after(self._rest, n)
        n_written = self._n_written + n
        tracked = self._tracked
        # Of a frame that was cut short the peer has nothing: a call is not made again and again for it.
        has_written = not rest or (bool(tracked) and tracked[0][0] <= n_written)
        none_sent: list[int] = []
        none_tracked: list[tuple[int, TrackedFrame]] = []
        # Nothing is called from here on.
        self._sent = none_sent
        self._rest = rest
        self._n_written = n_written
        if not rest:
            self._tracked = none_tracked
        if has_written:
            self.has_written = True

    def _cut(self, sock: Socket) -> None:
        """Ends the connection of a thread that was interrupted while code in Python was sending."""
        # How much it has sent will never be known, so all of it may have been.
        self._n_written = sys.maxsize
        self._has_failed = True
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
