"""Private memory for large buffers, which is used again when the arrays in it have died.

    allocate ──▶ array in use ──the last reference goes──▶ idle ──▶ allocate …
                                                             └──▶ unmapped, when there is too much

Fresh memory costs several times what a copy does, because every page of it faults when it is touched
first.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections.abc import Sequence

_MAPPED_FROM = 256 << 10  # malloc does as well below that
_HUGE_PAGE = 2 << 20
_PAGE = 64 << 10
_MAX_IDLE = 256 << 20  # bytes
_MAX_BLOCKS = 16

_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)


def copies(buffers: Sequence[memoryview]) -> list[memoryview]:
    """Private, writable copies: what a socket makes of buffers, where there is none."""
    found = []
    for buffer in buffers:
        memory = allocate(buffer.nbytes)
        memory[:] = buffer
        found.append(memory)
    return found


# One per process by nature, as its memory is. No lock guards it: `_give_back` may run inside the
# garbage collector, in the middle of anything. Each step on a list is one that threads cannot divide.
_idle: list[mmap.mmap] = []


def allocate(n: int) -> memoryview:
    """`n` private writable bytes, with any contents. Safe from any thread."""
    if n < _MAPPED_FROM:
        return memoryview(bytearray(n))
    size = -(-n // _PAGE) * _PAGE
    # The smallest idle block that is not much too large: what is used of it may be kept for long.
    for block in sorted(_idle, key=len):
        if size <= len(block) <= size + size // 4:
            try:
                _idle.remove(block)
                # A finalizer may have brought its array back to life after we were told of its death: this
                # changes nothing, and is refused while there is an array in the block.
                block.resize(len(block))
                break
            except (ValueError, BufferError, SystemError):
                continue  # another thread was faster; there is one; or this platform cannot tell
    else:
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:  # too many of them already
            return memoryview(bytearray(n))
        if _HUGE is not None and size >= _HUGE_PAGE:
            with contextlib.suppress(OSError):  # a kernel that was built without
                block.madvise(_HUGE, 0, size // _HUGE_PAGE * _HUGE_PAGE)  # no more than it has
    import ctypes  # a process with a connection has it already

    array = (ctypes.c_ubyte * len(block)).from_buffer(block)
    # Views keep the array, and so know when the block is not used any more.
    weakref.finalize(array, _give_back, block).atexit = False
    return memoryview(array).cast("B")[:n]


def _give_back(block: mmap.mmap) -> None:
    """The block is not used any more. May be called inside the garbage collector."""
    if len(block) > _MAX_IDLE:
        return
    _idle.append(block)
    while len(_idle) > _MAX_BLOCKS or sum(map(len, list(_idle))) > _MAX_IDLE:
        try:
            _idle.pop(0)  # this unmaps it, unless it is referred to
        except IndexError:
            return
