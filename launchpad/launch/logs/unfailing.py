"""A file to which Python can print although its disk is full: what does not fit is lost, and is not an error.

A worker's output is no part of its work. A program that has trained for a week must not die at a print().

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
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

T = TypeVar("T")

UNGUARDED = contextlib.nullcontext()

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""No space, a quota, the largest file that is allowed; and a disk that has failed altogether."""


class UnfailingBuffer(io.BufferedWriter):
    """A buffered file that takes all that is written, and drops what the disk does not take.

    Args:
      fd: A descriptor of the file.
      spare: Another one, for when user code has closed the first. Then nobody closes `fd` with this object.

    Attributes:
      trouble: Why something was dropped; None as long as nothing was.
      is_unbuffered: Whether everything is written at once.
      guard: Held while something is written; reentrant, for a signal's handler. At first nothing.
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
                self._try(self._write_past, data)
            if last := bytes(memoryview(data)[-1:]):
                self.is_mid_line = last != b"\n"
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Writes what is kept, or keeps it for the next time."""
        # A RuntimeError is one in a signal's handler: who was interrupted does it.
        with self.guard, contextlib.suppress(RuntimeError):
            self._try(super().flush)

    def _write_past(self, data: ReadableBuffer) -> None:
        os.write(self._fd, data)

    def _try(self, do: Callable[..., T], *arguments: ReadableBuffer) -> None:
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
    """Whether it says that a disk takes no more."""
    return error.errno in _FULL


def text_file(buffer: UnfailingBuffer, *, like: TextIO | None = None) -> TextIO:
    """A text stream over it, which writes at the end of each line; encoded as another one is."""
    buffer.is_unbuffered = bool(getattr(like, "write_through", False))
    wrapper = io.TextIOWrapper(
        buffer,
        encoding=getattr(like, "encoding", None) or "utf-8",
        errors=getattr(like, "errors", None) or "backslashreplace",
        newline="\n",
        line_buffering=True,
        write_through=buffer.is_unbuffered,
    )
    return cast(TextIO, wrapper)


def why_lost(error: OSError, place: str) -> str:
    """What a user has to know."""
    return (
        f"the logs in {place} cannot grow ({error.strerror}); what workers print from now on may be"
        " missing there, and the program runs on"
    )
