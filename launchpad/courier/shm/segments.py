"""Segments, which carry large buffers between processes of one host: the part that both sides share.

A segment is a file in memory (memfd) that its sender reuses for one message after the other. The
bytes of a message are copied once, by the sender; the receiver's arrays lie in the segment itself.

    sender (sender.py)                                receiver (receiver.py)
    ──────────────────                                ──────────────────────
    store: copies buffers into a free segment
    describe: serial += 1 ──── number, serial ──────▶ maps the file the first time
                               (and, the first time    hands out arrays over the mapping
                               on a connection, the         ⋮ the last of them dies
                               file's descriptor)     freed = serial   (a word of the segment)
    freed == serial: free again

    offset  field
    ──────  ──────────────────────────────────────────────────────────────────────
         0  freed: the last serial whose arrays have died; written by the receiver
        64  retired: the segment's last serial, 0 until it is known; by the sender
        72  number: identifies the segment in messages; by the sender
  one page  the buffers of one message, each at the next multiple of 64

Because of these rules arrays are private, and nothing leaks:
1. The sender writes into a segment only when it is free, and no lease of its own holds it.
2. A segment that has not been used for some seconds leaves the sender's pool. If it is free, its
   memory goes back to the system at once. Otherwise it belongs to the receiver from then on.
3. No segment has a name in a file system. When both sides have closed it, or have died, its memory is freed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import sys
from collections.abc import Sequence

from launchpad.courier.errors import ProtocolError
from launchpad.courier.periodic_checks import PeriodicChecks
from launchpad.courier.protocol.framing import Chunk

IS_SUPPORTED = sys.platform == "linux" and hasattr(os, "memfd_create") and sys.maxsize > 1 << 32

# The words of the header.
FREED = 0
RETIRED = 8
NUMBER = 9
HEADER_SIZE = mmap.PAGESIZE

LARGE = 64 << 10  # a buffer of this size costs less in a segment than in the frame
# The least number of bytes in large buffers for which a message uses a segment. A smaller frame is read in
# one piece, which is faster.
WORTHWHILE = 80 << 10
MAX_BUFFERS = 3000  # more lengths might not fit into the headers, together with the other headers

_ALIGNMENT = 64
# The smallest size for buffers. It is small because an array that is kept keeps its whole segment.
_SMALLEST = 128 << 10
_NO_EXEC = 8  # MFD_NOEXEC_SEAL, since Linux 6.3; some systems require it

# A message has this instead of its large buffers: the number of the segment, among those of the sending
# process; the serial of this use of the segment; and 1 if the segment's file comes along, because the
# receiver has not seen it yet.
DESCRIPTOR = struct.Struct("<QQQ")
DESCRIPTOR_SIZE = DESCRIPTOR.size


def is_worthwhile(buffers: Sequence[Chunk]) -> bool:
    """Return True if a message with these buffers is large enough to gain by a segment."""
    if len(buffers) == 1:
        return memoryview(buffers[0]).nbytes >= WORTHWHILE
    if not buffers or len(buffers) > MAX_BUFFERS:
        return False
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    return sum([size for size in sizes if size >= LARGE]) >= WORTHWHILE


def decode_descriptor(data: Chunk) -> tuple[int, int, bool]:
    """Return number, serial, and True if the file comes along. Raises ProtocolError if malformed."""
    if len(data) != DESCRIPTOR_SIZE:
        raise ProtocolError(f"a segment is described by {DESCRIPTOR_SIZE} bytes, not {len(data)}")
    number, serial, flag = DESCRIPTOR.unpack(data)
    if flag > 1:
        raise ProtocolError(f"not the description of a segment: flag {flag}")
    return number, serial, bool(flag)


def lay_out(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Return the offset of each buffer of a message, and the end of the last one."""
    if len(lengths) == 1:
        return [HEADER_SIZE], HEADER_SIZE + lengths[0]
    offsets = []
    end = HEADER_SIZE
    for length in lengths:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        offsets.append(start)
        end = start + length
    return offsets, end


def file_size(end: int) -> int:
    """Return the size of a segment for a message. It is a power of two, so that segments are reused.

    A file in memory occupies only what has been written, so the rest costs nothing.
    """
    data = max(end - HEADER_SIZE, _SMALLEST)
    return HEADER_SIZE + (1 << (data - 1).bit_length())


def create_file(size: int) -> int:
    """Create a file in memory that can't shrink under a process that maps it. Raises OSError."""
    try:
        fd = os.memfd_create("courier", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | _NO_EXEC)
    except OSError:
        fd = os.memfd_create("courier", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_file(fd: int) -> os.stat_result:
    """Return the file's status. Raises ProtocolError if it is not a segment that is safe to map."""
    status = os.fstat(fd)
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError as error:
        raise ProtocolError(f"a descriptor that is no file in memory: {error}") from None
    if not stat.S_ISREG(status.st_mode) or mode != os.O_RDWR or status.st_size <= HEADER_SIZE:
        raise ProtocolError(f"a file of {status.st_size} bytes, opened in mode {mode}: no segment")
    if not seals & fcntl.F_SEAL_SHRINK:
        raise ProtocolError("a segment that its sender could shrink under us: it must be sealed")
    return status


#: Frees segments that have been idle.
trimmer = PeriodicChecks("courier-trimmer", 1.0)
