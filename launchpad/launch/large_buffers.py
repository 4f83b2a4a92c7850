"""Large buffers: the bytes of arrays that a plan refers to, so that its payloads don't contain them.

    the script's array ── planned ──▶ LargeBuffer ── written once ──▶ file in memory ── mapped ──▶ workers

The plan and the file each contain the bytes of an array once, however many nodes are given the array. A
worker maps the bytes privately (copy on write): it shares what it only reads with all other workers, and what
it writes is its own. Each attempt maps the bytes again, and so begins with what the array held at the launch.

With local processes, the launch writes all buffers at once, into the file with the workers' specs. A plan
that is read repeatedly, as with threads and on clusters, has a file of its own (`keep_copies`). A process
that is the host of several workers also has such a file, and their forkservers inherit it.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import pickle
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from launchpad.courier import buffers, formatting
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.shm import segments

LARGE = 1 << 20
"""The smallest buffer, in bytes, that is worth a mapping. The payload contains smaller buffers itself."""

_logger = logging.getLogger("launchpad.launch")


class Openable(Protocol):
    """A buffer that an unpickler opens when the payload asks for its next one."""

    @property
    def nbytes(self) -> int: ...

    def open(self) -> memoryview:
        """Return the bytes, in memory that nothing else writes into."""


class LargeBuffer:
    """The bytes of one array, as the launching script's process has them.

    Args:
        memory: The array's own memory, which is used at first. It is kept alive, but it may still change.

    Attributes:
        nbytes: The number of bytes, which is known even after the memory was released.
    """

    def __init__(self, memory: Any) -> None:
        self._memory = memoryview(memory)
        self._kept: tuple[KeptFile, BufferInFile] | None = None
        self.nbytes = self._memory.nbytes

    @property
    def in_file(self) -> BufferInFile | None:
        """The place of the bytes in a file of their own; None if they have no file."""
        return None if self._kept is None else self._kept[1]

    @property
    def memory(self) -> memoryview:
        """The bytes, for reading; empty once they were released."""
        return self._memory if self._kept is None else self._kept[1].open()

    def keep_in(self, file: KeptFile, offset: int) -> None:
        """Write the bytes into a file, and read them from there from now on. Raises OSError."""
        file.write(self._memory, offset)
        self.release()
        self._kept = file, BufferInFile(file.fd, offset, self.nbytes)

    def keep_bytes(self) -> None:
        """Copy the bytes within this process."""
        self._memory = memoryview(bytes(self._memory))

    def release(self) -> None:
        """Release the memory of the array or the file. The bytes cannot be read any more."""
        self._memory = memoryview(b"")
        self._kept = None

    def open(self) -> memoryview:
        """Return the bytes, mapped privately, or a copy. Raises MemoryError, OSError."""
        if self._kept is not None:
            return self._kept[1].open()
        (copy,) = buffers.copies([self._memory])
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if protocol < 5:
            return LargeBuffer, (bytes(self.memory),)
        return LargeBuffer, (pickle.PickleBuffer(self.memory),)


@dataclass(frozen=True)
class BufferInFile:
    """The bytes of one array, in a file that is open here.

    Attributes:
        offset: The position of the first byte, as `aligned` has returned it.
    """

    fd: int
    offset: int
    nbytes: int

    def open(self) -> memoryview:
        """Map the bytes privately: what is written into them stays in this process.

        Raises:
            MemoryError: there is not enough memory, or the process may not use that much.
            OSError: they cannot be mapped for another reason.
        """
        try:
            return self._map()
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            size = formatting.size(self.nbytes)
            raise MemoryError(f"no memory for a large array that was given, of {size}") from error

    def _map(self) -> memoryview:
        if not segments.IS_SUPPORTED:
            mapping = mmap.mmap(self.fd, self.nbytes, access=mmap.ACCESS_COPY, offset=self.offset)
            return memoryview(mapping)
        # Python's mmap would keep a descriptor open for each buffer.
        from launchpad.courier.shm.region import Region

        region = Region.map_privately(self.fd, self.nbytes, self.offset)
        return memoryview(region.make_array()).cast("B")


class KeptFile:
    """A file in memory, closed when nothing refers to this object any more. Raises OSError."""

    def __init__(self, size: int) -> None:
        self.fd = segments.create_file(size)
        weakref.finalize(self, os.close, self.fd).atexit = False

    def write(self, data: memoryview, offset: int) -> None:
        while data:  # the kernel writes 2 GiB at most in one go
            n_written = os.pwrite(self.fd, data, offset)
            data = data[n_written:]
            offset += n_written


def keep_copies(large_buffers: Sequence[LargeBuffer]) -> None:
    """Copy the buffers, into one file if possible, so that later changes of the arrays have no effect."""
    offsets = []
    end = 0
    for buffer in large_buffers:
        offsets.append(end)
        end += aligned(buffer.nbytes)
    if segments.IS_SUPPORTED and large_buffers:
        try:
            file = KeptFile(end)
            for buffer, offset in zip(large_buffers, offsets, strict=True):
                buffer.keep_in(file, offset)
            return
        except OSError as error:
            _logger.debug("no file in memory for %s large buffers: %s", len(large_buffers), error)
    for buffer in large_buffers:
        if buffer.in_file is None:
            buffer.keep_bytes()


def aligned(offset: int) -> int:
    """Round an offset up to the next one at which a buffer may begin in a file."""
    return -(-offset // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
