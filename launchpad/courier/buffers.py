"""Private memory for large buffers. A block of memory is reused once the arrays in it are gone.

    allocate ──▶ array in use ──the last reference goes──▶ idle ──▶ allocate …
                                                             └──▶ unmapped, if too much is idle

Filling fresh memory takes several times as long as copying to used memory, because each fresh page faults
when it is first touched.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections.abc import Sequence

_MAPPED_FROM = 256 << 10  # bytes; for fewer, malloc is as good
_HUGE_PAGE = 2 << 20
_PAGE = 64 << 10
_MAX_IDLE = 256 << 20  # bytes
_MAX_BLOCKS = 16

_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)


def copies(buffers: Sequence[memoryview]) -> list[memoryview]:
    """Return private, writable copies of the buffers, like those that a socket would deliver."""
    result = []
    for buffer in buffers:
        memory = allocate(buffer.nbytes)
        memory[:] = buffer
        result.append(memory)
    return result


# One list per process, like its memory. No lock guards the list, because `_give_back` may run inside the
# garbage collector, in the middle of any other code. Each operation on the list is atomic.
_idle: list[mmap.mmap] = []


def allocate(n: int) -> memoryview:
    """Return `n` private writable bytes, with arbitrary contents. Thread-safe."""
    if n < _MAPPED_FROM:
        return memoryview(bytearray(n))
    size = -(-n // _PAGE) * _PAGE
    # Take the smallest idle block that fits, unless that block is much too large: its unused rest would be
    # wasted until the array is gone, which may take long.
    for block in sorted(_idle, key=len):
        if size <= len(block) <= size + size // 4:
            try:
                _idle.remove(block)
                # A finalizer may have resurrected the array after `_give_back` was called. Resizing the
                # block to its own size changes nothing, but fails while an array uses the block.
                block.resize(len(block))
                break
            except (ValueError, BufferError, SystemError):
                # Another thread took the block, or an array uses it, or this platform cannot resize it.
                continue
    else:
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:  # the process has too many mappings already
            return memoryview(bytearray(n))
        if _HUGE is not None and size >= _HUGE_PAGE:
            with contextlib.suppress(OSError):  # the kernel was built without huge pages
                # The length is rounded down to whole huge pages.
                block.madvise(_HUGE, 0, size // _HUGE_PAGE * _HUGE_PAGE)
    import ctypes  # a process with a connection has imported it already

    array = (ctypes.c_ubyte * len(block)).from_buffer(block)
    # Views keep the array alive, so its finalizer runs when the block is no longer used.
    weakref.finalize(array, _give_back, block).atexit = False
    return memoryview(array).cast("B")[:n]


def _give_back(block: mmap.mmap) -> None:
    """Keep an unused block for later. This may be called inside the garbage collector."""
    if len(block) > _MAX_IDLE:
        return
    _idle.append(block)
    while len(_idle) > _MAX_BLOCKS or sum(map(len, list(_idle))) > _MAX_IDLE:
        try:
            _idle.pop(0)  # this unmaps the block, unless something still refers to it
        except IndexError:
            return
