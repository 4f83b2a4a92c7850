"""The sender's side of segments: a pool of them, leased to messages (see segments.py).

lease = pool.store(buffers)                      # copies them; with None, send them through the socket
descriptor, fd = peer_segments.describe(lease)   # for this connection, each time it is sent
...                                              # send, the descriptor with SCM_RIGHTS
lease.release()                                  # it will not be sent again
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.buffers import copies
from launchpad.courier.interruptions import Lock, kept_whole
from launchpad.courier.shm import segments
from launchpad.courier.shm.region import Region, copy
from launchpad.courier.shm.segments import FREED, HEADER_SIZE, LARGE, NUMBER, RETIRED, trimmer

IDLE_S = 5.0  # after this long a segment leaves the pool
MAX_SEGMENTS = 128  # each takes a descriptor


class Segment:
    """One file in memory, and our mapping of it."""

    # Kept whole: after an interruption, nothing would close the file of a segment that is not in the pool.
    @kept_whole
    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = segments.create_file(size)
        try:
            self._region = Region.map_file(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self._words = self._region.words
        self._words[NUMBER] = number
        self.written = 0  # the file has no pages beyond this offset
        # The number of the last message in the segment. The receiver gives the segment back by this number.
        self.serial = 0
        self.peer_segments: PeerSegments | None = None  # the receiver of that message
        self._lease: weakref.ref[SegmentLease] | None = None
        self.used_at = 0.0

    @property
    def holder(self) -> SegmentLease | None:
        """The lease of this segment that has not been released, if there is one."""
        lease = None if self._lease is None else self._lease()
        return None if lease is None or lease.is_released else lease

    @property
    def is_free(self) -> bool:
        return self.is_returned and self.holder is None

    @property
    def is_lost(self) -> bool:
        """True if the receiver's connection has ended, so that the segment may never be given back."""
        peer = self.peer_segments
        return peer is not None and peer.is_closed and not self.is_returned

    @property
    def is_returned(self) -> bool:
        """True if no receiver has arrays in the segment, and no message on its way uses it."""
        return self._words[FREED] == self.serial

    @property
    def view(self) -> memoryview:
        return self._region.view

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset. Raises OSError if there is no memory.

        The kernel writes where the file has no pages yet, which spares us a fault for each page. Elsewhere
        we copy, because the kernel copies page by page, at half the speed.
        """
        end = offset + data.nbytes
        if end <= self.written:
            self._region.populate(self.written)
            copy(self._region.view[offset:end], data)
            return
        while data:
            n = os.pwrite(self.fd, data, offset)
            offset = offset + n
            data = data[n:]
        self.written = end

    def acquire(self, lengths: Sequence[int]) -> SegmentLease:
        """Lease the segment, which must be free."""
        lease = SegmentLease(self, lengths)
        self._lease = weakref.ref(lease)
        return lease

    def retire(self) -> None:
        """Close the segment. A receiver that has mapped it keeps it as long as necessary."""
        # This must come before the check: the receiver gives the segment back first, and checks this word
        # afterwards. So at least one of the two frees the memory.
        self._words[RETIRED] = self.serial
        if self.is_returned:
            self._region.empty(HEADER_SIZE)
        os.close(self.fd)


@dataclass(eq=False, slots=True, weakref_slot=True)
class SegmentLease:
    """Buffers in a segment, for one message.

    The segment holds no other message until `release`, or until nothing refers to the lease any more.
    """

    segment: Segment
    lengths: Sequence[int]
    #: For a lease that is kept until its message is answered: checks if the lease is still needed.
    look: Callable[[], object] | None = None
    is_released: bool = False

    def copy(self) -> list[memoryview]:
        """Return copies of the buffers."""
        offsets, _ = segments.lay_out(self.lengths)
        view = self.segment.view
        return copies([view[at : at + n] for at, n in zip(offsets, self.lengths, strict=True)])

    def release(self) -> None:
        """Release the lease: the message was sent, or never will be. May be called twice."""
        self.is_released = True


class PeerSegments:
    """The receiver at the other end of one connection, and the segments that it has seen.

    Call `describe` in the order in which the messages are sent.
    """

    def __init__(self, pool: SegmentPool) -> None:
        self._pool = pool
        self._received_segments: weakref.WeakSet[Segment] = weakref.WeakSet()
        self.is_closed = False
        pool.open_peers.add(self)

    def describe(self, lease: SegmentLease) -> tuple[bytes, int | None]:
        """Return the bytes to send instead of the buffers, and the file descriptor to send along, if any.

        Call it again each time a lease is sent.
        """
        segment = lease.segment
        is_new = segment.peer_segments is not self and segment not in self._received_segments
        if is_new:
            self._received_segments.add(segment)
        segment.peer_segments = self
        segment.serial += 1
        descriptor = segments.DESCRIPTOR.pack(segment.number, segment.serial, is_new)
        return descriptor, segment.fd if is_new else None

    def close(self) -> None:
        """Note that the connection has ended. Segments that were not given back now belong to the receiver.

        When the last connection ends, all other segments are dropped, too. This takes no lock, so that the
        garbage collector may call it: the trimmer's thread drops the segments, without delay.
        """
        self.is_closed = True
        self._pool.open_peers.discard(self)
        trimmer.check_now()


class SegmentPool:
    """The segments of this process. Thread-safe."""

    def __init__(self, max_bytes: int | None = None) -> None:
        if max_bytes is None:  # a quarter of the memory that this process may use
            limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
            for path in ("memory.max", "memory/memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):
                    limits.append(int(Path("/sys/fs/cgroup", path).read_text()))
            max_bytes = min(limits) // 4
        self._max_bytes = max_bytes
        self._numbers = itertools.count(1)
        self._segments: list[Segment] = []  # oldest first
        self.drop_inherited()
        fork.drop_in_child(self)

    def store(self, buffers: Sequence[memoryview]) -> SegmentLease | None:
        """Copy contiguous buffers into a segment; return None if there is no room for them.

        The caller then sends them through the socket, as it does where nothing is shared.
        """
        lengths = [buffer.nbytes for buffer in buffers]
        offsets, end = segments.lay_out(lengths)
        size = segments.file_size(end)
        with self._lock:
            lease = None
            for segment_in_pool in reversed(self._segments):
                if segment_in_pool.size == size and segment_in_pool.is_free:
                    lease = segment_in_pool.acquire(lengths)
                    break
        if lease is None:
            if end < self._max_bytes and not self._has_space(end):
                self._drop(lambda each: each.is_free)  # free segments of other sizes
            if not self._has_space(end):
                return None
            try:
                with self._lock:
                    self._segments.append(Segment(next(self._numbers), size))
                    lease = self._segments[-1].acquire(lengths)
            except OSError:
                return None
        segment = lease.segment
        try:
            for offset, buffer in zip(offsets, buffers, strict=True):
                segment.write(offset, buffer if buffer.format == "B" else buffer.cast("B"))
        except OSError:
            lease.release()
            self._drop(lambda each: each is segment)
            return None
        segment.used_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # out of threads: the next call tries again
            trimmer.add(self.check)
        return lease

    def recall(self) -> None:
        """Call `look` of leases whose segments were given back. The segments may be free, and still warm."""
        with self._lock:
            leases = [segment.holder for segment in self._segments if segment.is_returned]
        for lease in leases:
            if lease is not None and lease.look is not None:
                lease.look()

    def check(self, now: float) -> bool:
        """Drop segments that are idle or lost; return False if none are left."""
        is_over = not self.open_peers
        self._drop(lambda each: is_over or each.is_lost or now - each.used_at > IDLE_S)
        return bool(self._segments)

    def drop_inherited(self) -> None:
        """Drop all segments in a forked child: they are the parent's."""
        for segment in self._segments:
            os.close(segment.fd)
        # Held to look for a free segment and lease it, so that no two messages get the same one.
        self._lock = Lock()
        self._segments = []
        self.open_peers: set[PeerSegments] = set()  # those whose connections are open

    def _has_space(self, n: int) -> bool:
        with self._lock:
            in_use = sum(segment.written for segment in self._segments)
            return len(self._segments) < MAX_SEGMENTS and in_use + n <= self._max_bytes

    def _drop(self, is_unwanted: Callable[[Segment], bool]) -> None:
        """Drop the segments that are unwanted and that no lease of ours holds."""
        with self._lock:
            dropped_segments = [
                segment
                for segment in self._segments
                if segment.holder is None and is_unwanted(segment)
            ]
            self._segments = [
                segment for segment in self._segments if segment not in dropped_segments
            ]
        for segment in dropped_segments:
            segment.retire()


#: One per process, because a segment serves all connections.
pool = SegmentPool()


class SharedBuffers(NamedTuple):
    """The buffers of a message, the large ones in a segment, ready to be sent any number of times."""

    lease: SegmentLease
    small: list[memoryview]  # the other buffers, as they are
    lengths: Sequence[int]  # of all buffers

    @classmethod
    def store(cls, buffers: Sequence[memoryview]) -> SharedBuffers | None:
        """Copy the large buffers (at least one) into a segment; return None if there is no room."""
        if len(buffers) == 1:
            lease = pool.store(buffers)
            return None if lease is None else cls(lease, [], lease.lengths)
        lengths = [buffer.nbytes for buffer in buffers]
        lease = pool.store([buffer for buffer in buffers if buffer.nbytes >= LARGE])
        small = [buffer for buffer in buffers if buffer.nbytes < LARGE]
        return None if lease is None else cls(lease, small, lengths)

    def copy(self) -> list[memoryview]:
        """Return copies of all buffers as stored, for a message that no receiver has opened."""
        larges = iter(self.lease.copy())
        smalls = iter(copies(self.small))
        return [next(larges if n >= LARGE else smalls) for n in self.lengths]

    def release(self) -> None:
        """Release the lease: the message was sent, or never will be."""
        self.lease.release()
