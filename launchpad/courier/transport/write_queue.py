"""A queue of frames for a connection that several threads write to.

    put ──▶ queue ──▶ batch ──▶ socket
                        │ tracked frames that were not written in full when the connection ended
    next connection ◀───┘

1. Only the thread that holds the lock writes, and it writes many frames with one system call. Other threads
   add their frames and return.
2. The chunks of a frame stay together: they are put in one step, and written in order.
3. Small calls and results wait in the queue unencoded, and are encoded when they are written. Those that are
   next to each other then share a frame (protocol/joined.py).
4. A thread may be interrupted anywhere (interruptions.py). At each moment the queue knows which entries the
   thread has taken, and how many bytes it has written and not yet counted, so that the next thread can go on
   from there.
5. A frame is put as a `TrackedFrame` if it matters whether it was sent. It may be put while there is no
   connection. When a connection ends, the calls in tracked frames that were not written in full have not
   run. These frames go out over the next connection.
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

_BATCH_BYTES = 64 << 10  # in one write; the last frame may exceed it
# Chunks that are smaller than this on average are joined, because a copy costs less than a long list.
_COPY_BYTES = 16 << 10
_CHUNK_TYPES = frozenset([bytes, bytearray, memoryview])
_COUNTED_TYPES = _CHUNK_TYPES | {tuple}
_TUPLE_BYTES = 256  # the assumed size of an unencoded call or result
_TAKEN = 256  # the most entries taken from the queue at once
_TRY = (False,)  # arguments of `acquire`
_WAIT = (True,)


class TrackedFrame(Protocol):
    """A frame that knows whether it was sent."""

    # b"" if it must no longer be sent; `join` encodes a tuple.
    frame: bytes | list[Chunk] | tuple[Any, ...]
    is_sent: bool  # True before the first byte leaves


#: Encodes calls or results of the list, from the given index on, as one frame. Returns the frame, those of
#: its calls or results that are tracked, and the index of the first entry that is not in the frame.
Join = Callable[[Sequence[Any], int], tuple[bytes, Sequence[TrackedFrame], int]]


class WriteQueue:
    """The writing side of a connection, which another connection may replace later. Thread-safe.

    Example:
        queue = WriteQueue(sock)
        queue.put_chunks(framing.encode(framing.ITEM, 0, b"", body, views))
        while not queue.flush_all():
            queue.wait_until_writable(1.0)

    Args:
        sock: The connection; None until `connect`.
        most_bytes: When more bytes than this wait for a peer that doesn't read, threads that flush wait, too.
        join: The function that encodes entries that are tuples, or tracked frames whose `frame` is a tuple.
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
        # The thread that holds it writes. So frames leave in the order in which they were put, and the chunks
        # of a frame stay together.
        self._lock = Lock()
        # Entries taken from the queue for a batch.
        self._entries: list[Chunk | TrackedFrame | tuple[Any, ...]] = []
        self._rest: Sequence[Chunk] = ()  # the part of the batch that is not written
        # Holds a single number, how many bytes of the rest were sent, and is empty once they are counted.
        self._sent: list[int] = []
        # The tracked frames of the batch, each with the offset at which it ends.
        self._tracked: list[tuple[int, TrackedFrame]] = []
        self._n_written = 0  # bytes of the batch that were written
        self._has_failed = False
        self.has_written = False  # True once a whole frame has been written to this connection
        #: Adds a frame of one chunk, or a tracked frame. Never blocks.
        self.put = self._queue.append
        #: Adds the chunks of one frame. No other frame comes between them. Never blocks.
        self.put_chunks = self._queue.extend

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_empty(self) -> bool:
        """True if nothing waits to be written."""
        return not (self._queue or self._rest or self._entries)

    @property
    def is_connected(self) -> bool:
        return self._sock is not None and not self._has_failed

    def connect(self, sock: Socket) -> None:
        """Send frames to this connection from now on."""
        with self._lock:
            io = QuickIO(sock)
            self._sock = sock
            self._io = io
            self._has_failed = False
            self.has_written = False

    def disconnect(self) -> None:
        """Put tracked frames that were not written in full back into the queue, and stop writing.

        When this returns, no thread writes any more.
        """
        with self._lock:
            self._sock = None
            if self._sent:
                self._count_sent()
            unsent: list[Any] = [frame for end, frame in self._tracked if end > self._n_written]
            # A thread that was interrupted while it made a batch may have marked these entries as sent, too.
            unsent += self._entries
            for frame in unsent:
                if type(frame) not in _COUNTED_TYPES:
                    frame.is_sent = False
            self._queue.extendleft(reversed(unsent))
            self._rest = ()
            self._tracked = []
            self._entries = []

    def close(self, *, is_last_write: bool = False) -> bool:
        """Stop writing, even if more frames are put. Return True if nothing was left to write.

        With `is_last_write`, write the waiting frames first, if the peer still reads.
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
            self._entries = []
            return is_clean

    def drop_inherited(self) -> None:
        """Close the socket without the lock, which may never be released in a forked child."""
        if self._sock is not None:
            self._sock.close()

    def flush(self, *, wait: bool = True) -> bool:
        """Write until nothing is left, or another thread is writing. Raises OSError.

        Returns:
            False if `wait` is False and the socket takes no more now.
        """
        lock = self._lock
        flags = NO_SIGNAL if wait else SEND_NOW
        while not self.is_empty and self._sock is not None:
            outcomes: list[bool] = []
            try:
                outcomes.extend(map(lock.acquire, _TRY))
                if not outcomes[0]:
                    # Another thread writes. Wait for it only if too much is waiting already.
                    if self._most_bytes is None or self._n_waiting() <= self._most_bytes:
                        return True
                    outcomes.clear()
                    outcomes.extend(map(lock.acquire, _WAIT))
                # The connection and the queue may have changed before this thread got the lock.
                if self._sock is not None and not self.is_empty:
                    self._write(self._sock, flags)
            except BlockingIOError:
                return False
            finally:
                # The release must be the first call in this block. An interruption could raise in an earlier
                # call, and the lock would stay held.
                if outcomes and outcomes[0]:
                    lock.release()
        return True

    def flush_all(self) -> bool:
        """Write what the socket takes now. Return True if all frames that were put before are written.

        Raises OSError. Don't use this for a queue that other threads `flush`, because it would wait for them.
        """
        with self._lock:
            try:
                while not self.is_empty and self._sock is not None:
                    self._write(self._sock, SEND_NOW)
                return True
            except BlockingIOError:
                return False

    def wait_until_writable(self, timeout_s: float) -> bool:
        """Wait until the socket takes more, or the connection has ended. Return False after the timeout."""
        sock = self._sock
        # If the socket is closed by now, a flush will notice.
        with contextlib.suppress(OSError, ValueError):
            poller = select.poll()
            if sock is not None:
                poller.register(sock, select.POLLOUT)
                return bool(poller.poll(timeout_s * 1000))
        return True

    def _n_waiting(self) -> int:
        """Return the approximate number of waiting bytes."""
        waiting: list[Any] = [*self._entries, *self._queue]
        return sum(
            _TUPLE_BYTES if type(each) is tuple else len(each)
            for each in waiting
            if type(each) in _COUNTED_TYPES
        )

    # The callers of these methods hold the lock.

    def _write(self, sock: Socket, flags: int) -> None:
        """Write as much of the batch, or of a new one, as the socket takes."""
        counts = self._sent
        try:
            if not (counts or self._rest):
                self._make_batch()
                unsent = self._rest
                if len(unsent) == 1 and self._io is not None:
                    self._io.try_send(unsent[0], counts)
            unsent = self._rest
            if unsent and not counts:
                # `extend(map(…))` sends and keeps the count in one call into C, so that no interruption can
                # come between the two.
                if len(unsent) > 1:
                    counts.extend(map(sock.sendmsg, (unsent[:MAX_GATHER],), ((),), (flags,)))
                else:
                    counts.extend(map(sock.send, (unsent[0],), (flags,)))
        except BaseException as error:
            if isinstance(error, OSError) and not is_interruption(error):
                self._has_failed |= not isinstance(error, BlockingIOError)
            elif type(sock) is not socket.socket and not counts:
                self._cut(sock)
            raise
        if counts:
            self._count_sent()

    def _make_batch(self) -> None:
        """Take frames from the queue, and encode as many as one write should have."""
        entries = self._entries
        if not entries:
            n = min(len(self._queue), _TAKEN)
            entries.extend(starmap(self._queue.popleft, repeat((), n)))
        chunks: list[Chunk] = []
        tracked: list[tuple[int, TrackedFrame]] = []
        at = 0
        size = 0
        while at < len(entries) and size < _BATCH_BYTES:
            each: Any = entries[at]
            if type(each) in _CHUNK_TYPES:
                chunks.append(each)
                size += len(each)
                at += 1
                continue
            frame = each if type(each) is tuple else each.frame
            if type(frame) is tuple:
                assert self._join is not None
                frame, joined, at = self._join(entries, at)
                chunks.append(frame)
                size += len(frame)
                tracked += [(size, each) for each in joined]
                continue
            # Set this before `frame` is read for sending. A thread that cancels the call takes the frame away
            # first, and then looks at `is_sent`.
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
        unsent: Sequence[Chunk] = ()
        if size <= min(2 * _BATCH_BYTES, _COPY_BYTES * len(chunks)):
            unsent = (b"".join(chunks),) if size else ()
        else:
            unsent = [chunk for chunk in chunks if len(chunk)]
        entries = entries[at:]
        # From here on nothing is called, so no interruption can come between these assignments.
        self._rest = unsent
        self._tracked = tracked
        self._n_written = 0
        self._entries = entries

    def _count_sent(self) -> None:
        """Count the bytes of the last send. An interrupted thread may have made that send."""
        n = max(0, self._sent[0])
        unsent = left_after(self._rest, n)
        n_written = self._n_written + n
        tracked = self._tracked
        # A frame that was cut short doesn't count, because the peer can do nothing with a part of it.
        # Otherwise its call could be sent over one new connection after another, without an end.
        has_written = not unsent or (bool(tracked) and tracked[0][0] <= n_written)
        none_sent: list[int] = []
        none_tracked: list[tuple[int, TrackedFrame]] = []
        # From here on nothing is called, so no interruption can come between these assignments.
        self._sent = none_sent
        self._rest = unsent
        self._n_written = n_written
        if not unsent:
            self._tracked = none_tracked
        if has_written:
            self.has_written = True

    def _cut(self, sock: Socket) -> None:
        """End the connection after a thread was interrupted while Python code was sending."""
        # It is unknown how much was sent, so all of it may have been.
        self._n_written = sys.maxsize
        self._has_failed = True
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
