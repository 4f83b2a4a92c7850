"""The receiver's side of segments: it maps them, and opens messages in them (see segments.py).

mappings = MappedSegments()                          # one for each connection
mappings.take(fd)                                    # when a descriptor arrives, with SCM_RIGHTS
buffers = mappings.receive(descriptor, lengths)      # of a message
mappings.close()                                     # the arrays live on

The arrays of one message are views of one lease. When the last of these arrays is gone, the lease ends, and
the receiver notes this in a word of the segment. This costs no message, and works even after the connection
has ended.

After a fork, parent and child would write into each other's arrays, because shared memory is not copied on
write. So before a fork each lease gets a snapshot, a copy in a file of its own. The child maps the snapshot,
copied on write, instead of the shared memory. All children that are forked before the arrays change share one
snapshot. In the parent nothing changes.
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

MAX_LEASES = 64  # if this many messages are kept, the next ones are copied out of their segments
MAX_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


class MappedSegment:
    """A segment that is mapped into this process."""

    def __init__(self, fd: int, size: int) -> None:
        self._end = 0  # the end of the longest message so far
        self.region = Region.map_file(fd, size)
        self.number: int = self.region.words[NUMBER]

    def open(self, serial: int, offsets: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """Return the buffers of a message: views, or copies if too much is leased already."""
        end = offsets[-1] + lengths[-1] if offsets else 0
        if end > self._end:
            self._end = end
        with _lock:
            region = self.region
            leases = _active.copy()
            in_use = end + sum([lease_in_use.end for lease_in_use in leases])
            is_full = len(leases) >= MAX_LEASES or in_use > MAX_BYTES
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
        # This must come before the check: the sender retires the segment first, and checks this word
        # afterwards. So at least one of the two frees the memory.
        self.region.words[FREED] = serial
        if self.region.words[RETIRED] == serial:
            self.region.empty(HEADER_SIZE)


class ReceivedLease(weakref.ref[Any]):
    """The use of the first `end` bytes of a region by the arrays of one message.

    The lease is a weak reference to the buffer of which all these arrays are views, and ends with the buffer.
    A separate `weakref.finalize` would cost as much as everything else.
    """

    __slots__ = ("end", "has_ended", "mapping", "region", "serial", "snapshot")

    mapping: MappedSegment
    region: Region
    serial: int
    end: int
    has_ended: bool
    snapshot: Snapshot | None  # made for the last fork

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def finish(self) -> None:
        """End the lease, because the arrays are gone.

        This may run in any thread, and inside the garbage collector. So nothing that it calls may take a
        lock.
        """
        _active.discard(self)
        self.snapshot = None
        if not self.has_ended:
            self.has_ended = True
            self.mapping.give_back(self.serial)

    def keep_snapshot(self) -> None:
        """Take a snapshot of the arrays' contents, unless the last one still shows them. Raises OSError."""
        if self.snapshot is None or not self.snapshot.shows(self.region):
            self.snapshot = Snapshot(self.region, self.end)

    def abandon(self) -> None:
        """Drop the lease without ever notifying the sender."""
        self.snapshot = None
        self.has_ended = True
        _active.discard(self)


# Each process has its own leases and mappings, as it has its own memory.
_active: set[ReceivedLease] = set()
# The key is device and inode, so that connections to one process share its segments.
_mapped: weakref.WeakValueDictionary[tuple[int, int], MappedSegment] = weakref.WeakValueDictionary()

# Held while a segment is mapped, and while a lease begins. Held also from the moment at which a fork looks
# at the leases until the fork is over: a lease that began in between would have no snapshot in the child.
_lock = RLock()


def _before_fork() -> None:
    interruption: BaseException | None = None
    _lock.acquire()
    for lease in _active.copy():
        try:
            lease.keep_snapshot()
        except BaseException as error:
            # The child will share the memory, so it is never given back.
            lease.abandon()
            # An OSError means that there is no memory, or no descriptor. Anything else was raised by a
            # signal handler.
            if not isinstance(error, OSError):
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
        lease.abandon()  # only the parent gives the memory back
    _lock = RLock()
    _mapped = weakref.WeakValueDictionary()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


class MappedSegments:
    """The segments in which the peer at the other end of one connection sends buffers.

    `take` and `receive` may be called by one thread at a time, `close` by any.

    Args:
        is_peer_gone: Called about once a second while segments are mapped. If it returns True, the segments
            are closed.
    """

    def __init__(self, is_peer_gone: Callable[[], bool] = lambda: False) -> None:
        self._is_peer_gone = is_peer_gone
        self._mappings: dict[int, MappedSegment] = {}
        self._lost_numbers: set[int] = set()
        fork.drop_in_child(self)

    def take(self, fd: int) -> None:
        """Map the segment whose descriptor has arrived, and close `fd`.

        If the file can't be mapped, or is not a segment, it is lost. The message that refers to it then
        raises.
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
        self._mappings.setdefault(mapping.number, mapping)
        with contextlib.suppress(RuntimeError):  # out of threads: the next call tries again
            trimmer.add(self.check)

    def receive(self, descriptor: Chunk, lengths: Sequence[int]) -> list[memoryview]:
        """Return the buffers of a message, private and writable.

        Raises ProtocolError for a descriptor that no courier sends. Raises OSError if the segment could not
        be mapped, for lack of descriptors or memory: then the message is lost, but not the connection.
        """
        return self.open(*segments.decode_descriptor(descriptor), lengths)

    def open(
        self, number: int, serial: int, comes_with_fd: bool, lengths: Sequence[int]
    ) -> list[memoryview]:
        """Do what `receive` does, for a descriptor that is decoded already."""
        mapping = self._mappings.get(number)
        if mapping is None:
            if comes_with_fd:  # the kernel drops descriptors for which the process has no room
                self._lost_numbers.add(number)
            if number in self._lost_numbers:
                raise OSError(errno.EMFILE, "a segment could not be received, or not be mapped")
            raise ProtocolError(f"segment {number} came without its descriptor")
        offsets, end = segments.lay_out(lengths)
        size = mapping.region.size
        if end > size:
            raise ProtocolError(f"buffers up to {end} in a segment of {size} bytes")
        return mapping.open(serial, offsets, lengths)

    def close(self) -> None:
        """Forget the segments. Arrays in them stay valid, and give the memory back when they are gone."""
        self._mappings.clear()
        trimmer.check_now()

    def check(self, now: float) -> bool:
        """Forget segments that no message will use again. Return False if no others are left."""
        if self._is_peer_gone():
            self.close()
        for number, mapping in tuple(self._mappings.items()):
            words = mapping.region.words
            # No message will use it again, and no array uses it now.
            if words[RETIRED] and words[RETIRED] == words[FREED]:
                self._mappings.pop(number, None)
        return bool(self._mappings)

    def drop_inherited(self) -> None:
        """Forget the segments in a forked child: the connection is the parent's."""
        self._mappings.clear()
