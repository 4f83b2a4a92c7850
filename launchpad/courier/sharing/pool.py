"""The sender's side of segments: a pool of them, lent to messages (see segments.py).

loan = pool.lend(buffers)                        # copies them; None: send them as ever
descriptor, fd = borrower.describe(loan)         # for this connection, each time it is sent
...                                              # send, the descriptor with SCM_RIGHTS
loan.release()                                   # it will not be sent again
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from launchpad.courier import forking
from launchpad.courier.sharing import segments
from launchpad.courier.sharing.region import Region
from launchpad.courier.sharing.segments import FREED, HEADER_SIZE, N_WORDS, NUMBER, RETIRED
from launchpad.courier.sharing.trimmer import trimmer

IDLE_S = 5.0  # after this long a segment leaves the pool
MAX_SEGMENTS = 128  # each is a descriptor


class Segment:
    """One file in memory, and our mapping of it."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = segments.create_file(size)
        try:
            self._region = Region.map_file(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self._words = self._region.get_words(N_WORDS)
        self._words[NUMBER] = number
        self._written = 0  # from here on the file has no pages
        self._serial = 0
        self._borrower: Borrower | None = None  # of this serial
        self._loan: weakref.ref[Loan] | None = None
        self.used_at = 0.0

    @property
    def is_held(self) -> bool:
        loan = None if self._loan is None else self._loan()
        return loan is not None and not loan.is_released

    @property
    def is_free(self) -> bool:
        return self._words[FREED] == self._serial and not self.is_held

    @property
    def is_lost(self) -> bool:
        """Its connection has ended, so nobody knows whether it will be given back."""
        borrower = self._borrower
        return borrower is not None and borrower.is_closed and not self._is_returned

    @property
    def _is_returned(self) -> bool:
        """No receiver has arrays in it, and no message under way names it."""
        return self._words[FREED] == self._serial

    @property
    def n_bytes(self) -> int:
        """What it occupies."""
        return self._written

    def write(self, offset: int, data: memoryview) -> None:
        """Raises OSError when there is no memory.

        What has no pages yet is written by the kernel, which spares us a fault for each of them.
        What has is copied by us: the kernel copies page by page, at half the speed.
        """
        end = offset + data.nbytes
        if end <= self._written:
            self._region.populate(self._written)
            self._region.write(offset, data)
            return
        while data:
            n = os.pwrite(self.fd, data, offset)
            offset, data = offset + n, data[n:]
        self._written = end

    def hold(self, lengths: Sequence[int]) -> Loan:
        """It must be free."""
        loan = Loan(self, lengths)
        self._loan = weakref.ref(loan)
        return loan

    def lend_to(self, borrower: Borrower) -> int:
        """The serial under which it is to be given back."""
        self._borrower = borrower
        self._serial += 1
        return self._serial

    def retire(self) -> None:
        """Closes it. What a receiver has of it lives on for as long as the receiver wants."""
        self._words[RETIRED] = self._serial
        if self._is_returned:
            self._region.empty(HEADER_SIZE)
        os.close(self.fd)


class Loan:
    """Buffers in a segment, for one message.

    The segment is used for no other, until `release` or until nobody refers to the loan any more.
    """

    __slots__ = ("__weakref__", "is_released", "lengths", "segment")

    def __init__(self, segment: Segment, lengths: Sequence[int]) -> None:
        self.segment = segment
        self.lengths = lengths
        self.is_released = False

    def release(self) -> None:
        """The message has been sent, or never will be. May be called twice."""
        self.is_released = True


class Borrower:
    """The receiver at the other end of one connection, and which segments it has seen.

    Calls must come in the order in which the messages are sent.
    """

    def __init__(self, pool: SegmentPool) -> None:
        self._pool = pool
        self._known: weakref.WeakSet[Segment] = weakref.WeakSet()
        self.is_closed = False
        pool.borrowers.add(self)

    def describe(self, loan: Loan) -> tuple[bytes, int | None]:
        """What to send in place of the buffers, and the descriptor to send along, if any.

        To be called anew each time that a loan is sent.
        """
        segment = loan.segment
        if is_new := segment not in self._known:
            self._known.add(segment)
        descriptor = segments.encode_descriptor(segment.number, segment.lend_to(self), is_new)
        return descriptor, segment.fd if is_new else None

    def close(self) -> None:
        """The connection has ended. What it has not given back is the receiver's from now on.

        With the last connection goes all the rest. Takes no lock, so it may be called from inside
        the garbage collector: the thread that trims does what is to be done, at once.
        """
        self.is_closed = True
        self._pool.borrowers.discard(self)
        trimmer.look()


class SegmentPool:
    """The segments of this process. Safe from any thread."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = _max_bytes() if max_bytes is None else max_bytes
        self._numbers = itertools.count(1)
        self._reset()
        forking.drop_in_child(self)

    def lend(self, buffers: Sequence[memoryview]) -> Loan | None:
        """Copies contiguous buffers into a segment; None when there is no room for them.

        The caller then sends them through the socket, as it does where nothing is shared.
        """
        lengths = [buffer.nbytes for buffer in buffers]
        offsets, end = segments.lay_out(lengths)
        loan = self._take(segments.file_size(end), end, lengths)
        if loan is None:
            return None
        segment = loan.segment
        try:
            for offset, buffer in zip(offsets, buffers, strict=True):
                segment.write(offset, buffer.cast("B"))
        except OSError:
            loan.release()
            self._drop(lambda each: each is segment)
            return None
        segment.used_at = time.monotonic()
        trimmer.watch(self)
        return loan

    def trim(self, now: float) -> bool:
        """Drops what has not been used for a while, or can't be; False when nothing is left."""
        is_over = not self.borrowers
        self._drop(lambda each: is_over or each.is_lost or now - each.used_at > IDLE_S)
        return bool(self._segments)

    def drop_inherited(self) -> None:
        """For a forked child: these are the parent's."""
        for segment in self._segments:
            os.close(segment.fd)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._segments: list[Segment] = []  # oldest first
        self.borrowers: set[Borrower] = set()  # whose connections are open

    def _take(self, size: int, end: int, lengths: Sequence[int]) -> Loan | None:
        with self._lock:
            for segment in reversed(self._segments):
                if segment.size == size and segment.is_free:
                    return segment.hold(lengths)
        return self._make(size, lengths) if self._make_room(end) else None

    def _make(self, size: int, lengths: Sequence[int]) -> Loan | None:
        with contextlib.suppress(OSError), self._lock:
            segment = Segment(next(self._numbers), size)
            self._segments.append(segment)
            return segment.hold(lengths)
        return None

    def _make_room(self, n: int) -> bool:
        """Drops free segments of other sizes, if it has to."""
        if self._has_room(n):
            return True
        if n < self._max_bytes:
            self._drop(lambda segment: segment.is_free)
        return self._has_room(n)

    def _has_room(self, n: int) -> bool:
        with self._lock:
            in_use = sum(segment.n_bytes for segment in self._segments)
            return len(self._segments) < MAX_SEGMENTS and in_use + n <= self._max_bytes

    def _drop(self, is_unwanted: Callable[[Segment], bool]) -> None:
        """Drops those that are unwanted and not held by us."""
        with self._lock:
            dropped = [each for each in self._segments if not each.is_held and is_unwanted(each)]
            self._segments = [each for each in self._segments if each not in dropped]
        for segment in dropped:
            segment.retire()


def _max_bytes() -> int:
    """A quarter of the memory that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            limits.append(int(file.read()))
    return min(limits) // 4


#: One per process by nature: a segment serves all connections.
pool = SegmentPool()
