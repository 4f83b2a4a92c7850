"""The writer of the log of one attempt. It rotates a log that is too large, and reports a full disk once.

    print, logging ──▶ sys.stdout ──▶ descriptor 1 ──┐
    C, subprocesses ───────────────▶ 1 and 2 ────────┼──▶ learner-0.log
    faulthandler ──────────────────▶ one of our own ─┘

A process writes to the file itself, so nothing is lost if it is killed. Its log's size is checked by a
separate thread, every second, and sooner if the log grows quickly. The thread rotates the log between two
lines of Python's streams. Otherwise a line that is written in pieces, as by print() under PYTHONUNBUFFERED,
would be in two files. If all output comes through write(), the size is checked after each line instead.

A rotation moves the log's descriptors to a new file, so that all streams over these descriptors go on
working.

A worker's output is not part of its work: a program that has trained for a week must not fail at a print()
because a disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from launchpad.courier import fork
from launchpad.courier.own_threads import OwnThread
from launchpad.launch.logs.rotation import FULL, Rotation, first_part

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD = (1, 2)
_UNGUARDED = contextlib.nullcontext()
_SHORTEST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

_LONGEST_LINE_S = 1.0
"""The most seconds to wait for the end of a line, since a progress bar's line may not end."""


class LossyWriter(io.BufferedWriter):
    """A buffered file that accepts everything, and drops what the disk does not take.

    It also accepts a print() in a signal handler that interrupts another write. Python's own buffer refuses
    this as reentrant.

    Args:
        fd: A descriptor of the file.
        spare: Another descriptor, in case user code closes the first. If given, `fd` is not closed with this
            object.

    Attributes:
        trouble: The reason why something was dropped; None if nothing was dropped.
        is_unbuffered: True if everything is written at once.
        guard: A lock that is held during a write. It is reentrant, for signal handlers. At first it does
            nothing.
        is_mid_line: True if the last write ended in the middle of a line.
    """

    trouble: OSError | None = None
    is_unbuffered = False
    is_mid_line = False
    guard: AbstractContextManager[Any] = _UNGUARDED

    def __init__(self, fd: int, spare: int | None = None) -> None:
        super().__init__(io.FileIO(fd, "w", closefd=spare is None))
        self._fd = fd
        self._spare = spare

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the data. Return its whole length, even if some data was dropped."""
        with self.guard:
            try:
                self._try(super().write, data)
                if self.is_unbuffered:
                    self.flush()
            except RuntimeError:  # raised in a signal handler
                self._try(lambda: os.write(self._fd, data))
            last = bytes(memoryview(data)[-1:])
            if last:
                self.is_mid_line = last != b"\n"
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Write the buffered data, or keep it for the next time."""
        # A RuntimeError comes in a signal handler. The code that the signal interrupted will flush.
        with self.guard, contextlib.suppress(RuntimeError):
            self._try(super().flush)

    def _try(self, do: Callable[..., object], *arguments: ReadableBuffer) -> None:
        try:
            do(*arguments)
        except OSError as error:
            if error.errno == errno.EBADF and self._spare is not None:
                os.dup2(self._spare, self._fd)
                do(*arguments)
            elif error.errno in FULL:
                self.trouble = error
            else:
                raise


class LogWriter:
    """The log of an attempt, as a text stream that any thread may write to.

    This class itself is for a worker that is a thread here or runs on another host, so that all of its output
    comes through write().

    Args:
        warn: Called once, with a text for the user, when output is lost because the disk is full.
        standard: Descriptors that refer to the log already. If there are no such descriptors, the log is
            opened.

    Attributes:
        fd: A descriptor of our own, which stays open when user code closes the others.
    """

    def __init__(
        self,
        path: Path,
        rotation: Rotation,
        warn: Callable[[str], None],
        standard: Sequence[int] = (),
    ) -> None:
        self.fd = os.dup(standard[-1]) if standard else first_part(path)
        self._path = path
        self._rotation = rotation
        self._warn = warn
        self._fds = (*standard, self.fd)
        self._buffers = [LossyWriter(fd, self.fd) for fd in standard] or [LossyWriter(self.fd)]
        # Held during a write and during a rotation. Otherwise a rotation could split a line into two files.
        # Reentrant, because a signal handler may interrupt a print of the main thread, and print too.
        self._lock = threading.RLock()
        self._has_warned = False

    def write(self, text: str) -> int:
        """Add a text to the log. If it contains a newline, write it at once."""
        data = text.encode(errors="backslashreplace")
        if "\n" in text:
            self.write_bytes(data)
        else:
            with self._lock:
                self._buffers[0].write(data)
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Add encoded text to the log, and write it at once. Rotate the log if it is too large."""
        with self._lock:
            self._buffers[0].write(data)
            self._buffers[0].flush()
            if 0 < self._rotation.max_bytes < os.fstat(self.fd).st_size:
                self._rotate()
            self.report_trouble()

    def flush(self) -> None:
        with self._lock:
            self._buffers[0].flush()

    def isatty(self) -> bool:
        """Return False, since a log is a file."""
        return False

    def close(self) -> None:
        """Close the file. Printing afterwards is an error, as with any closed stream."""
        with self._lock:
            self._buffers[0].close()

    def report_trouble(self) -> None:
        """If output was lost, call `warn`, but only once."""
        trouble = next((b.trouble for b in self._buffers if b.trouble is not None), None)
        if trouble is not None and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"the logs in {self._path.parent} cannot grow ({trouble.strerror}); what workers print from"
                " now on may be missing there, and the program runs on"
            )

    def _rotate(self) -> bool:
        """Rotate the log. Return False if that failed, and must be tried again."""
        try:
            new = self._rotation.rotate(self._path)
        except OSError:
            return False
        old = os.fstat(self.fd)
        for fd in self._fds:
            with contextlib.suppress(OSError):  # closed by user code
                # If user code has opened another file under this number, leave that file alone.
                if os.path.samestat(os.fstat(fd), old):
                    os.dup2(new, fd, inheritable=fd in _STANDARD)
        os.close(new)
        return True


class ProcessLog(LogWriter):
    """The log of this process, to which fds 1 and 2 point already. It replaces Python's streams."""

    def __init__(self, path: Path, rotation: Rotation, warn: Callable[[str], None]) -> None:
        super().__init__(path, rotation, warn, _STANDARD)
        for buffer, name in zip(self._buffers, ("stdout", "stderr"), strict=True):
            cast(io.FileIO, buffer.raw).name = f"<{name}>"
            before = getattr(sys, name)
            buffer.is_unbuffered = bool(getattr(before, "write_through", False))
            stream = io.TextIOWrapper(
                buffer,
                # Use UTF-8 whatever the locale is, so that logs can be read, and no print() fails.
                encoding="utf-8",
                errors="backslashreplace",
                newline="\n",
                line_buffering=True,
                write_through=buffer.is_unbuffered,
            )
            for attribute in (name, f"__{name}__"):
                setattr(sys, attribute, stream)

    def watch(self) -> None:
        """From now on, rotate the log, in a separate thread."""
        for buffer in self._buffers:
            buffer.guard = self._lock
            # A forked child does not have this thread, and the thread may have held the lock at the fork.
            unguard = functools.partial(setattr, buffer, "guard", _UNGUARDED)
            fork.reset_in_child(unguard)
        OwnThread(target=self._watch, name="launchpad-log").start()

    def print(self, text: str) -> None:
        """Add a text, even if user code has closed or replaced the standard streams."""
        with contextlib.suppress(Exception):  # the streams may be any objects
            print(text, file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError):
            os.write(self.fd, f"{text}\n".encode(errors="backslashreplace"))

    def _watch(self) -> None:
        size = 0
        pause_s = 0.1
        while True:
            time.sleep(pause_s)
            before = size
            size = os.fstat(self.fd).st_size
            growth = size - before
            rotate_by = time.monotonic() + _LONGEST_LINE_S
            while 0 < self._rotation.max_bytes < size:
                with self._lock:
                    is_mid_line = any(buffer.is_mid_line for buffer in self._buffers)
                    if not is_mid_line or time.monotonic() > rotate_by:
                        size = 0 if self._rotate() else size
                        break
                time.sleep(0.001)
            self.report_trouble()
            if growth <= 0 or not self._rotation.max_bytes:
                pause_s = _LONGEST_PAUSE_S
            else:
                # Wait half the time until the log is full, if it goes on growing like this.
                until_full_s = (self._rotation.max_bytes - size) / growth * pause_s
                pause_s = min(max(until_full_s / 2, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
