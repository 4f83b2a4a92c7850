"""The log of one attempt of a worker, as it is written: rotated when too large; a full disk is reported once.

    print, logging ──▶ sys.stdout ──▶ descriptor 1 ──┐
    C, subprocesses ───────────────▶ 1 and 2 ────────┼──▶ learner-0.log
    faulthandler ──────────────────▶ one of our own ─┘

A process writes to the file itself, so nothing is lost when it is killed. The size can then only be checked
by another thread, which does it every second, sooner for a log that grows quickly. It rotates the log between
two lines of Python's streams: a line that is written in pieces, as by print() under PYTHONUNBUFFERED, would
else be in two files. Where write() is the only way, the size is checked after each line.

A log is rotated by moving its descriptors to a new file, so that all streams over them stay.

A worker's output is no part of its work: a program that has trained for a week must not fail at a print()
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
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

_LONGEST_LINE_S = 1.0
"""How long the end of a line is waited for: a progress bar has none."""


class LossyWriter(io.BufferedWriter):
    """A buffered file that takes all that is written, and drops what the disk does not take.

    Nor is a print() in a signal's handler an error, which may come while another is being written: Python's
    own buffer calls that reentrant.

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
    guard: AbstractContextManager[Any] = _UNGUARDED

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
            elif error.errno in FULL:
                self.trouble = error
            else:
                raise


class LogWriter:
    """The log of an attempt, as a text stream that any thread may write to.

    As it is, of a worker that is a thread here, or that runs on another host: its output comes by write().

    Args:
        warn: Called once, with a text for the user, when output is lost because the disk is full.
        standard: Descriptors that are the log already; by default there are none, and it is opened.

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
        self._path, self._rotation, self._warn = path, rotation, warn
        self._fds = (*standard, self.fd)
        self._buffers = [LossyWriter(fd, self.fd) for fd in standard] or [LossyWriter(self.fd)]
        self._lock = threading.RLock()  # a signal's handler may print while the main thread does
        self._has_warned = False

    def write(self, text: str) -> int:
        """Adds to the log; what ends a line is written at once."""
        data = text.encode(errors="backslashreplace")
        if "\n" in text:
            self.write_bytes(data)
        else:
            with self._lock:
                self._buffers[0].write(data)
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Adds what is encoded already; it is written at once, and the log rotated when it is too large."""
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
        """False: a log is a file."""
        return False

    def close(self) -> None:
        """Closes the file; what is printed afterwards is an error, as with any closed stream."""
        with self._lock:
            self._buffers[0].close()

    def report_trouble(self) -> None:
        """Calls `warn` if output was lost, the first time."""
        trouble = next((b.trouble for b in self._buffers if b.trouble is not None), None)
        if trouble is not None and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"the logs in {self._path.parent} cannot grow ({trouble.strerror}); what workers print from"
                " now on may be missing there, and the program runs on"
            )

    def _rotate(self) -> bool:
        """Rotates the log; False if that cannot be done now, and is to be tried again."""
        try:
            new = self._rotation.rotate(self._path)
        except OSError:
            return False
        old = os.fstat(self.fd)
        for fd in self._fds:
            with contextlib.suppress(OSError):  # closed by user code
                if os.path.samestat(os.fstat(fd), old):  # else it is user code's own now
                    os.dup2(new, fd, inheritable=fd in _STANDARD)
        os.close(new)
        return True


class ProcessLog(LogWriter):
    """The log of this process, whose descriptors 1 and 2 it is already; takes over Python's streams."""

    def __init__(self, path: Path, rotation: Rotation, warn: Callable[[str], None]) -> None:
        super().__init__(path, rotation, warn, _STANDARD)
        for buffer, name in zip(self._buffers, ("stdout", "stderr"), strict=True):
            cast(io.FileIO, buffer.raw).name = f"<{name}>"
            before = getattr(sys, name)
            buffer.is_unbuffered = bool(getattr(before, "write_through", False))
            stream = io.TextIOWrapper(
                buffer,
                encoding="utf-8",  # whatever the locale: so logs are read, and no print() is an error
                errors="backslashreplace",
                newline="\n",
                line_buffering=True,
                write_through=buffer.is_unbuffered,
            )
            for attribute in (name, f"__{name}__"):
                setattr(sys, attribute, stream)

    def watch(self) -> None:
        """Rotates it from now on, in a thread of its own."""
        for buffer in self._buffers:
            buffer.guard = self._lock
            # A forked child has no such thread, and the fork may have been made while that one held the lock.
            unguard = functools.partial(setattr, buffer, "guard", _UNGUARDED)
            fork.reset_in_child(unguard)
        OwnThread(target=self._watch, name="launchpad-log").start()

    def print(self, text: str) -> None:
        """Adds a text, also when user code has closed or replaced the standard streams."""
        with contextlib.suppress(Exception):  # they may be anything
            print(text, file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError):
            os.write(self.fd, f"{text}\n".encode(errors="backslashreplace"))

    def _watch(self) -> None:
        size, pause_s = 0, 0.1
        while True:
            time.sleep(pause_s)
            before, size = size, os.fstat(self.fd).st_size
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
            else:  # half the time in which it is full, if it goes on like this
                until_full_s = (self._rotation.max_bytes - size) / growth * pause_s
                pause_s = min(max(until_full_s / 2, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
