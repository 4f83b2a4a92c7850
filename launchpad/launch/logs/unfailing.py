"""A file to which Python can print although its disk is full: what does not fit is lost, and is not an error.

A worker's output is no part of its work. A program that has trained for a week must not die at a print().
"""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""No space, a quota, the largest file that is allowed; and a disk that has failed altogether."""


class UnfailingFile(io.FileIO):
    """A raw file that takes all that is written, and drops what the disk does not take.

    Attributes:
      trouble: Why something was dropped; None as long as nothing was.
      spare: Another descriptor of the same file, for when user code has closed this one.
    """

    trouble: OSError | None = None
    spare: int | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes; always all of it, as far as the caller can see."""
        try:
            return super().write(data) or 0
        except OSError as error:
            return self._without(data, error)

    def _without(self, data: ReadableBuffer, error: OSError) -> int:
        if error.errno == errno.EBADF and self.spare is not None:
            return _written(self.spare, data)
        if not is_full(error):
            raise error
        self.trouble = error
        return len(memoryview(data).cast("B"))


def is_full(error: OSError) -> bool:
    """Whether it says that a disk takes no more."""
    return error.errno in _FULL


def text_file(raw: UnfailingFile, *, like: TextIO | None = None) -> TextIO:
    """A text stream over it, which writes at the end of each line; encoded as another one is."""
    wrapper = io.TextIOWrapper(
        cast(io.BufferedWriter, raw) if _is_unbuffered(like) else io.BufferedWriter(raw),
        encoding=getattr(like, "encoding", None) or "utf-8",
        errors=getattr(like, "errors", None) or "backslashreplace",
        newline="\n",
        line_buffering=True,
        write_through=_is_unbuffered(like),
    )
    return cast(TextIO, wrapper)


def why_lost(error: OSError, place: str) -> str:
    """What a user has to know."""
    return (
        f"the logs in {place} cannot grow ({error.strerror}); what workers print from now on may be"
        " missing there, and the program runs on"
    )


def _is_unbuffered(stream: TextIO | None) -> bool:
    return bool(getattr(stream, "write_through", False))


def _written(fd: int, data: ReadableBuffer) -> int:
    with io.FileIO(fd, "w", closefd=False) as file:
        return file.write(data)
