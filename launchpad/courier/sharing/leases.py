"""Which arrays are alive in memory that another process lent us.

The arrays of one message are views of one lease. When the last of them has died, the lease ends,
and a word in the segment says so: that costs no message, and works when the connection has long
ended.

A fork would make parent and child write into each other's arrays, because shared memory is not
copied on write. So before a fork each living lease gets a private copy of its memory, in place.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from launchpad.courier.sharing.region import Region, array_type

MAX_LEASES = 64  # somebody keeps what arrives: from here on it is copied out of the segments
MAX_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


class Lender(Protocol):
    """Where a lease is, and who wants to know of its end."""

    region: Region

    def give_back(self, serial: int) -> None: ...

    def part(self) -> None: ...


class Lease:
    """Memory in use by the arrays of one message, the first `end` bytes of a region."""

    __slots__ = ("_has_ended", "_lender", "_region", "_serial", "end")

    def __init__(self, lender: Lender, serial: int, end: int) -> None:
        self._lender = lender
        self._region = lender.region
        self._serial = serial
        self._has_ended = False
        self.end = end
        _living.add(self)

    def get_memory(self) -> memoryview:
        """All of the region."""
        array = array_type(self._region.size).from_address(self._region.address)
        # It also keeps the lease, and so the region. Runs in any thread, and inside the garbage
        # collector: nothing that it calls may take a lock.
        weakref.finalize(array, self.finish).atexit = False
        return memoryview(array).cast("B")

    def finish(self) -> None:
        """The arrays have died, or have their memory for themselves."""
        _living.discard(self)
        if not self._has_ended:
            self._has_ended = True
            self._lender.give_back(self._serial)

    def part(self) -> None:
        """Before a fork: the arrays get their memory for themselves."""
        try:
            if self._lender.region is self._region:  # not done for another lease in it
                self._lender.part()
            self.finish()
        except OSError:  # no memory for a copy: it stays shared, and is never given back
            self.abandon()

    def abandon(self) -> None:
        """Never says that it has ended."""
        self._has_ended = True
        _living.discard(self)


# One per process by nature, as its memory is.
_living: set[Lease] = set()


# Held while a lease begins: not between a fork's look at what is alive and its copy of that.
_lock = threading.RLock()


def begin(lender: Lender, serial: int, end: int) -> memoryview | None:
    """Leases a region, of which a message takes the first `end` bytes; None when too much is leased.

    The lease ends when the memory and all that is made from it has died.
    """
    with _lock:
        living = _living.copy()
        if len(living) >= MAX_LEASES or sum(each.end for each in living) + end > MAX_BYTES:
            return None
        lease = Lease(lender, serial, end)
    return lease.get_memory()


def _before_fork() -> None:
    with _lock:
        for lease in _living.copy():
            lease.part()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for lease in _living.copy():  # begun since by other threads, which are not in the child
        lease.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
