"""Private memory for large buffers, reused once the arrays in it are gone.

    allocate ──▶ array in use ──the last reference goes──▶ idle ──▶ allocate …
                                                             └──▶ unmapped, when there is too much

Fresh memory costs several times as much as a copy, because each of its pages faults when it is first
touched.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections.abc import Sequence

_MAPPED_FROM = 256 << 10  # bytes; below that malloc is as good
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


# One per process, like its memory. No lock guards it: `_give_back` may run inside the garbage
# collector, in the middle of anything. Each operation on the list is atomic.
_idle: list[mmap.mmap] = []


def allocate(n: int) -> memoryview:
    """Return `n` private writable bytes, with arbitrary contents. Thread-safe."""
    if n < _MAPPED_FROM:
        return memoryview(bytearray(n))
    size = -(-n // _PAGE) * _PAGE
    # Take the smallest idle block that fits, unless it is much too large: the array may live long, and the
    # rest of the block is wasted until it is gone.
    for block in sorted(_idle, key=len):
        if size <= len(block) <= size + size // 4:
            try:
                _idle.remove(block)
                # A finalizer may have resurrected the array after `_give_back` was called. Resizing the
                # block to its own size changes nothing, and fails while there is an array in it.
                block.resize(len(block))
                break
            except (ValueError, BufferError, SystemError):
                # Another thread was faster; or there is an array; or this platform cannot resize.
                continue
    else:
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:  # the process has too many mappings already
            return memoryview(bytearray(n))
        if _HUGE is not None and size >= _HUGE_PAGE:
            with contextlib.suppress(OSError):  # the kernel was built without huge pages
                # The length is rounded down, to include only whole huge pages.
                block.madvise(_HUGE, 0, size // _HUGE_PAGE * _HUGE_PAGE)
    import ctypes  # a process with a connection has imported it already

    array = (ctypes.c_ubyte * len(block)).from_buffer(block)
    # Views keep the array alive, so its finalizer runs when the block is no longer used.
    weakref.finalize(array, _give_back, block).atexit = False
    return memoryview(array).cast("B")[:n]


def _give_back(block: mmap.mmap) -> None:
    """Keep a block that is no longer used for later. May be called inside the garbage collector."""
    if len(block) > _MAX_IDLE:
        return
    _idle.append(block)
    while len(_idle) > _MAX_BLOCKS or sum(map(len, list(_idle))) > _MAX_IDLE:
        try:
            _idle.pop(0)  # this unmaps the block, unless something still refers to it
        except IndexError:
            return
