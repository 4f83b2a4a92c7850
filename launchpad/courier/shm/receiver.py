"""The receiver's side of segments: what is mapped here, and opening messages (see segments.py).

mappings = MappedSegments()                          # one for each connection
mappings.take(fd)                                    # when one comes, with SCM_RIGHTS
buffers = mappings.receive(descriptor, lengths)      # of a message
mappings.close()                                     # the arrays live on

The arrays of one message are views of one lease. When the last of them has died, the lease ends,
and a word in the segment says so: that costs no message, and works when the connection has long
ended.

A fork would make parent and child write into each other's arrays, because shared memory is not
copied on write. So before a fork each lease gets a snapshot, a copy in a file of its own, and the child maps
that in the place of the memory: it is copied on write from then on. All children that are forked before the
arrays change have the same snapshot. In the parent nothing changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from launchpad.courier import fork
from launchpad.courier.buffers import allocate
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import RLock
from launchpad.courier.protocol.framing import Chunk
from launchpad.courier.shm import segments
from launchpad.courier.shm.region import Region, Snapshot, copy
from launchpad.courier.shm.segments import FREED, HEADER_SIZE, NUMBER, RETIRED, trimmer

MAX_LEASES = 64  # what arrives is kept: from here on it is copied out of the segments
MAX_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


class MappedSegment:
    """One segment of some process, mapped here."""

    def __init__(self, fd: int, size: int) -> None:
        self._end = 0  # of the longest message so far
        self.region = Region.map_file(fd, size)
        self.number: int = self.region.words[NUMBER]

    def open(self, serial: int, offsets: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """Return the buffers of a message: views, or copies if too much is leased already."""
        end = offsets[-1] + lengths[-1] if offsets else 0
        if end > self._end:
            self._end = end
        with _lock:
            region = self.region
            alive = _active.copy()
            in_use = end + sum([each.end for each in alive])
            is_full = len(alive) >= MAX_LEASES or in_use > MAX_BYTES
            array = None if is_full else region.make_array()
            if array is not None:
                lease = ReceivedLease(array, ReceivedLease.finish)
                lease.mapping = self
                lease.region = region
                lease.serial = serial
                lease.end = end
                lease.has_ended = False
                lease.snapshot = None
                _active.add(lease)
        if array is None:
            copies = [allocate(n) for n in lengths]
            for at, n, private in zip(offsets, lengths, copies, strict=True):
                copy(private, region.view[at : at + n])
            self.give_back(serial)
            return copies
        memory = memoryview(array).cast("B")
        region.populate(self._end)
        return [memory[at : at + n] for at, n in zip(offsets, lengths, strict=True)]

    def give_back(self, serial: int) -> None:
        """Notify the sender; free the memory if the sender has retired the segment."""
        self.region.words[FREED] = serial
        if self.region.words[RETIRED] == serial:
            self.region.empty(HEADER_SIZE)


class ReceivedLease(weakref.ref[Any]):
    """Memory in use by the arrays of one message, the first `end` bytes of a region.

    It refers to the buffer that all of them are views of, and ends with it. An object of its own for that,
    a `weakref.finalize`, would cost as much as all the rest.
    """

    __slots__ = ("end", "has_ended", "mapping", "region", "serial", "snapshot")

    mapping: MappedSegment
    region: Region
    serial: int
    end: int
    has_ended: bool
    snapshot: Snapshot | None  # of the last fork

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def finish(self) -> None:
        """End the lease: the arrays have died.

        May run in any thread, and inside the garbage collector: nothing that it calls may take a lock.
        """
        _active.discard(self)
        self.snapshot = None
        if not self.has_ended:
            self.has_ended = True
            self.mapping.give_back(self.serial)

    def keep_snapshot(self) -> None:
        """Take a snapshot of what the arrays hold now, unless the last one still shows it. Raises OSError."""
        if self.snapshot is None or not self.snapshot.shows(self.region):
            self.snapshot = Snapshot(self.region, self.end)

    def abandon(self) -> None:
        """Drop the lease without ever notifying the sender."""
        self.snapshot = None
        self.has_ended = True
        _active.discard(self)


# One of each per process by nature, as its memory is.
_active: set[ReceivedLease] = set()
# By device and inode: connections to one process share its segments.
_mapped: weakref.WeakValueDictionary[tuple[int, int], MappedSegment] = weakref.WeakValueDictionary()

# Held while a segment is mapped, or a lease begins; and from a fork's look at what is alive until it is over.
_lock = RLock()


def _before_fork() -> None:
    interruption: BaseException | None = None
    _lock.acquire()
    for lease in _active.copy():
        try:
            lease.keep_snapshot()
        except BaseException as error:
            # The child will share it, so it is never given back.
            lease.abandon()
            if not isinstance(
                error, OSError
            ):  # of memory, or descriptors; else a signal's handler raised
                interruption = error
    if interruption is not None:
        raise interruption  # Python prints it, and forks all the same


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _mapped
    for lease in _active.copy():
        if lease.snapshot is not None:
            lease.region.show(lease.snapshot)
        lease.abandon()  # it is the parent's to give back
    _lock = RLock()
    _mapped = weakref.WeakValueDictionary()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


class MappedSegments:
    """The segments that the peer at the other end of one connection has named.

    `take` and `receive` may be called by one thread at a time, `close` by any.

    Args:
        is_peer_gone: asked about once a second while segments are mapped; true closes.
    """

    def __init__(self, is_peer_gone: Callable[[], bool] = lambda: False) -> None:
        self._is_peer_gone = is_peer_gone
        self._known: dict[int, MappedSegment] = {}
        self._lost: set[int] = set()
        fork.drop_in_child(self)

    def take(self, fd: int) -> None:
        """Map the segment whose descriptor has come. Closes `fd`.

        What cannot be mapped, or is no segment, is lost; the message that names it will say so.
        """
        try:
            status = segments.check_file(fd)
            key = status.st_dev, status.st_ino
            with _lock:
                mapping = _mapped.get(key)
                if mapping is None:
                    mapping = _mapped[key] = MappedSegment(fd, status.st_size)
        except (OSError, ProtocolError):
            return
        finally:
            os.close(fd)
        self._known.setdefault(mapping.number, mapping)
        with contextlib.suppress(RuntimeError):  # out of threads: the next one tries again
            trimmer.add(self.check)

    def receive(self, descriptor: Chunk, lengths: Sequence[int]) -> list[memoryview]:
        """Return the buffers of a message, private and writable.

        Raises ProtocolError for what no courier sends; OSError when the segment could not be had
        for lack of descriptors or memory: the message is lost then, but not the connection.
        """
        return self.open(*segments.decode_descriptor(descriptor), lengths)

    def open(
        self, number: int, serial: int, comes_with_fd: bool, lengths: Sequence[int]
    ) -> list[memoryview]:
        """Do what `receive` does, for a descriptor that is decoded already."""
        mapping = self._known.get(number)
        if mapping is None:
            if comes_with_fd:  # the kernel drops what the process has no room for
                self._lost.add(number)
            if number in self._lost:
                raise OSError(errno.EMFILE, "a segment could not be received, or not be mapped")
            raise ProtocolError(f"segment {number} came without its descriptor")
        offsets, end = segments.lay_out(lengths)
        if end > (size := mapping.region.size):
            raise ProtocolError(f"buffers up to {end} in a segment of {size} bytes")
        return mapping.open(serial, offsets, lengths)

    def close(self) -> None:
        """Forget the segments. Arrays in them live on, and give them back when they die."""
        self._known.clear()
        trimmer.check_now()

    def check(self, now: float) -> bool:
        """Forget segments that will not be named again; return False if there are no others."""
        if self._is_peer_gone():
            self.close()
        for number, mapping in tuple(self._known.items()):
            words = mapping.region.words
            # Named no more, and no array is alive in it:
            if words[RETIRED] and words[RETIRED] == words[FREED]:
                self._known.pop(number, None)
        return bool(self._known)

    def drop_inherited(self) -> None:
        """Forget the segments in a forked child: the connection is the parent's."""
        self._known.clear()
