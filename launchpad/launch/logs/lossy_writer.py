"""A file to which Python can print although its disk is full: what does not fit is lost, and is not an error.

A worker's output is no part of its work. A program that has trained for a week must not fail at a print().

Nor at one in a signal's handler, which may come while another print() is being written: Python's own buffer
calls that reentrant, and an error.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

UNGUARDED = contextlib.nullcontext()

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""No space, a quota, the largest file that is allowed; and a disk that has failed altogether."""


class LossyWriter(io.BufferedWriter):
    """A buffered file that takes all that is written, and drops what the disk does not take.

    Args:
        fd: A descriptor of the file.
        spare: Another one, for when user code has closed the first. Then `fd` is not closed with this object.

    Attributes:
        trouble: Why something was dropped; None as long as nothing was.
        is_unbuffered: Whether everything is written at once.
        guard: Held while something is written; reentrant, for a signal's handler. At first it does nothing.
        is_mid_line: Whether the last thing written left a line open.
    """

    trouble: OSError | None = None
    is_unbuffered = False
    is_mid_line = False
    guard: AbstractContextManager[Any] = UNGUARDED

    def __init__(self, fd: int, spare: int | None = None) -> None:
        super().__init__(io.FileIO(fd, "w", closefd=spare is None))
        self._fd, self._spare = fd, spare

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes; all of it, as far as the caller can see."""
        with self.guard:
            try:
                self._try(super().write, data)
                if self.is_unbuffered:
                    self.flush()
            except RuntimeError:  # in a signal's handler
                self._try(lambda: os.write(self._fd, data))
            if last := bytes(memoryview(data)[-1:]):
                self.is_mid_line = last != b"\n"
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Writes what is kept, or keeps it for the next time."""
        # A RuntimeError is one in a signal's handler: the code that it has interrupted flushes.
        with self.guard, contextlib.suppress(RuntimeError):
            self._try(super().flush)

    def _try(self, do: Callable[..., object], *arguments: ReadableBuffer) -> None:
        try:
            do(*arguments)
        except OSError as error:
            if error.errno == errno.EBADF and self._spare is not None:
                os.dup2(self._spare, self._fd)
                do(*arguments)
            elif is_full(error):
                self.trouble = error
            else:
                raise


def is_full(error: OSError) -> bool:
    """Whether it is the error of a disk that takes no more."""
    return error.errno in _FULL
