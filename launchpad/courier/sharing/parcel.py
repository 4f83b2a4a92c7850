"""The buffers of a message that is to be shared: the large ones in a segment, the others as they are."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from launchpad.courier.sharing import segments
from launchpad.courier.sharing.pool import Loan, pool
from launchpad.courier.sharing.segments import LARGE


class Parcel:
    """Ready to be sent, any number of times, on any connection."""

    __slots__ = ("_lengths", "loan", "small")

    def __init__(self, loan: Loan, buffers: Sequence[memoryview]) -> None:
        self.loan = loan
        self.small = [buffer for buffer in buffers if buffer.nbytes < LARGE]
        self._lengths = [buffer.nbytes for buffer in buffers]

    def describe(self, descriptor: bytes) -> bytes:
        """What the message says instead of its large buffers."""
        return descriptor + struct.pack(f"<{len(self._lengths)}Q", *self._lengths)

    def release(self) -> None:
        """It has been sent, or never will be."""
        self.loan.release()


def wrap(buffers: Sequence[memoryview]) -> Parcel | None:
    """A parcel; None if it is not worthwhile, or there is no room: send the buffers as they are."""
    if not segments.is_worthwhile(buffers):
        return None
    loan = pool.lend([buffer for buffer in buffers if buffer.nbytes >= LARGE])
    return None if loan is None else Parcel(loan, buffers)
