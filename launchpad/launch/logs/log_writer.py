"""The log of one attempt of a worker, as it is written: rotated when too large; a full disk is reported once.

    LogWriter    of a worker that is a thread here, or runs on another host, and whose output comes by write()
    ProcessLog   of a worker that is this process: descriptors 1 and 2, and Python's streams, are the log

    print, logging ──▶ sys.stdout ──▶ descriptor 1 ──┐
    C, subprocesses ───────────────▶ 1 and 2 ────────┼──▶ learner-0.log
    faulthandler ──────────────────▶ one of our own ─┘

A process writes to the file itself, so nothing is lost when it is killed. The size can then only be checked
by another thread, which does it every second, sooner for a log that grows quickly. It rotates the log between
two lines of Python's streams: a line that is written in pieces, as by print() under PYTHONUNBUFFERED, would
else be in two files. Where write() is the only way, the size is checked after each line.

A log is rotated by moving its descriptors to a new file, so that all streams over them stay.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from launchpad.launch.logs.lossy_writer import UNGUARDED, LossyWriter
from launchpad.launch.logs.rotation import Rotation, first_part

_STANDARD = (1, 2)

_LONGEST_LINE_S = 1.0
"""How long the end of a line is waited for: a progress bar has none."""


class LogWriter:
    """The log of an attempt, as a text stream that any thread may write to.

    Args:
        path: Where it is.
        rotation: When it is rotated.
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
        with self._lock:
            self._buffers[0].write(text.encode(errors="backslashreplace"))
            if "\n" in text:
                self._rotate_if_due()
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Adds what is encoded already; it is written at once."""
        with self._lock:
            self._buffers[0].write(data)
            self._rotate_if_due()

    def flush(self) -> None:
        """Writes what was begun."""
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

    def _rotate_if_due(self) -> None:
        self._buffers[0].flush()
        if self._rotation.is_due(os.fstat(self.fd).st_size):
            self._rotate()
        self.report_trouble()

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
                encoding=getattr(before, "encoding", None) or "utf-8",
                errors=getattr(before, "errors", None) or "backslashreplace",
                newline="\n",
                line_buffering=True,
                write_through=buffer.is_unbuffered,
            )
            for attribute in (name, f"__{name}__"):
                setattr(sys, attribute, stream)

    def watch(self) -> None:
        """Rotates it from now on, in a thread of its own."""

        def guard_by(guard: AbstractContextManager[Any]) -> None:
            for buffer in self._buffers:
                buffer.guard = guard

        guard_by(self._lock)
        # A forked child has no such thread, and the fork may have been made while that one held the lock.
        os.register_at_fork(after_in_child=lambda: guard_by(UNGUARDED))
        threading.Thread(target=self._watch, name="launchpad-log", daemon=True).start()

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
            if self._rotation.is_due(size) and self._rotate_between_lines():
                size = 0
            self.report_trouble()
            pause_s = self._rotation.check_after_s(size, growth, pause_s)

    def _rotate_between_lines(self) -> bool:
        check_at = time.monotonic() + _LONGEST_LINE_S
        while True:
            with self._lock:
                is_mid_line = any(buffer.is_mid_line for buffer in self._buffers)
                if not is_mid_line or time.monotonic() > check_at:
                    return self._rotate()
            time.sleep(0.001)
