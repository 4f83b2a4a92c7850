"""A range of addresses to which a shared file is mapped, one level below Python's `mmap`.

It does three things that `mmap` doesn't do: stay mapped without an open descriptor (`mmap` keeps one before
Python 3.13), copy without holding the GIL, and be replaced in place in a forked child.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Iterator

from launchpad.courier.interruptions import kept_whole
from launchpad.courier.shm import segments

_PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10
_MADV_POPULATE_READ = 22  # Linux 5.14
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value
_N_WORDS = 16
_SMALL = 1 << 20  # copying this much takes no longer than releasing the GIL and getting it back

_libc = ctypes.CDLL(None, use_errno=True)
_word = ctypes.c_size_t
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (_word, _word, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.memcmp.argtypes = (_word, _word, _word)
_libc.munmap.argtypes = (_word, _word)
_libc.madvise.argtypes = (_word, _word, ctypes.c_int)


class Region:
    """Mapped memory, unmapped when nothing refers to the region any more.

    Code that hands out the region's memory must keep the region, because nothing else keeps the address
    valid. An array from `make_array` keeps the region by itself.
    """

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self._populated = 0
        # Making the type takes longer than making an instance.
        self._array_type = ctypes.c_ubyte * size
        #: All its bytes, and the first few as words of 64 bits. Each word is read and written in one piece.
        self.view = memoryview(self._array_type.from_address(address)).cast("B")
        self.words = (ctypes.c_uint64 * _N_WORDS).from_address(address)
        self._finalizer = weakref.finalize(self, _unmap, address, size)
        # Values with finalizers of their own may look at the memory while the interpreter ends.
        self._finalizer.atexit = False

    # Kept whole: an interruption before there is a finalizer would leave memory that nothing unmaps.
    @classmethod
    @kept_whole
    def map_file(cls, fd: int, size: int) -> Region:
        """Map the first `size` bytes of a file, shared with every process that maps it. Raises OSError."""
        return cls(_check(_libc.mmap(0, size, _READ_WRITE, mmap.MAP_SHARED, fd, 0)), size)

    @classmethod
    @kept_whole
    def map_privately(cls, fd: int, size: int, offset: int) -> Region:
        """Map a part of a file, copied on write: writes stay in this process. Raises OSError."""
        return cls(_check(_libc.mmap(0, size, _READ_WRITE, mmap.MAP_PRIVATE, fd, offset)), size)

    def make_array(self) -> ctypes.Array[ctypes.c_ubyte]:
        """Return a buffer over the whole region, which keeps it alive and supports weak references."""
        array = self._array_type.from_address(self.address)
        array.region = self  # type: ignore[attr-defined]
        return array

    def populate(self, end: int) -> None:
        """Enter the first `end` bytes into the page table, at a tenth of the cost of one fault for each page.

        The file must have its pages already. This is only a hint: failure affects nothing but speed.
        """
        if end > self._populated:
            start = self._populated & -_PAGE
            self._populated = end
            _libc.madvise(self.address + start, end - start, _MADV_POPULATE_READ)

    def empty(self, start: int) -> None:
        """Give the pages from `start` on back to the system, even if other processes have them mapped.

        These pages stay readable, as zeros.
        """
        _libc.madvise(self.address + start, self.size - start, mmap.MADV_REMOVE)

    def show(self, snapshot: Snapshot) -> None:
        """Map a snapshot at the same addresses; from now on, writes stay in this process.

        For a forked child. Raises OSError.
        """
        how = mmap.MAP_PRIVATE | _MAP_FIXED
        _check(_libc.mmap(self.address, self.size, _READ_WRITE, how, snapshot.fd, 0))


class Snapshot:
    """A copy of the first bytes of a region at one moment, in a file of its own.

    Bytes that other threads write at that moment may be in it, or not. Raises OSError if there is no memory.
    """

    def __init__(self, region: Region, n: int) -> None:
        self._n = n
        self.fd = segments.create_file(region.size)
        weakref.finalize(self, os.close, self.fd).atexit = False
        offset = 0
        # The kernel writes, because it reports an error if there is no memory.
        while offset < n:
            offset += os.pwrite(self.fd, region.view[offset:n], offset)
        self._own = Region.map_file(self.fd, region.size)

    def shows(self, region: Region) -> bool:
        """Return True if the region has not changed since."""
        return not _libc.memcmp(self._own.address, region.address, self._n)


def copy(into: memoryview, data: memoryview) -> None:
    """Copy bytes, of regions or other buffers; release the GIL if there are many."""
    assert into.nbytes == data.nbytes
    if data.nbytes <= _SMALL:
        into[:] = data
        return
    with address_of(into) as target, address_of(data) as source:
        ctypes.memmove(target, source, data.nbytes)


def _check(result: int) -> int:
    if result in (_FAILED, -1):
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)}, for memory shared with another process")
    return result


def _unmap(address: int, size: int) -> None:
    if not sys.is_finalizing():
        _libc.munmap(address, size)


# `Py_buffer` of the stable ABI. On a 64-bit machine it has this many words, and the first is the address.
_PyBuffer = ctypes.c_void_p * 10
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


@contextlib.contextmanager
def address_of(view: memoryview) -> Iterator[int]:
    """Provide the address of a contiguous buffer. ctypes can't provide it if the buffer is read-only."""
    buffer = _PyBuffer()
    _get_buffer(view, buffer, 0)
    try:
        yield buffer[0] or 0
    finally:
        _release_buffer(buffer)
