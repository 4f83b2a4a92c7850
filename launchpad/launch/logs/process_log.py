"""A worker process's output: its descriptors 1 and 2, and Python's streams, are its log file.

    print, logging ──▶ sys.stdout ──▶ descriptor 1 ──┐
    C, subprocesses ───────────────▶ 1 and 2 ────────┼──▶ learner-0.log
    faulthandler ──────────────────▶ one of our own ─┘

Nobody stands between a writer and the file, so nothing is lost when a process dies. That is why the size can
only be looked at from outside the writing: by a thread that does it every second, sooner for a log that grows
quickly. It turns the log over by moving the descriptors to a new file, between two lines of Python's streams:
one that is written in pieces, as by print() under PYTHONUNBUFFERED, would else be torn.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.logs.unfailing import UNGUARDED, UnfailingBuffer, text_file, why_lost

_STANDARD = (1, 2)

_LONGEST_LINE_S = 1.0
"""How long the end of a line is waited for: a progress bar has none."""


class ProcessLog:
    """The log of this process, whose descriptors 1 and 2 it is already.

    Args:
      path: Where it is.
      rotation: When it is turned over.
      tell: Told once, in words, when output is lost because the disk takes no more.

    Attributes:
      fd: A descriptor of our own, which stays when user code closes 1 and 2.
    """

    def __init__(self, path: Path, rotation: Rotation, tell: Callable[[str], None]) -> None:
        self.fd = os.dup(2)
        self._path, self._rotation, self._tell = path, rotation, tell
        self._guard = threading.RLock()
        self._buffers = [UnfailingBuffer(fd, self.fd) for fd in _STANDARD]
        for buffer, name in zip(self._buffers, ("stdout", "stderr"), strict=True):
            _replace(name, buffer)

    def watch(self) -> None:
        """Keeps it small from now on, in a thread of its own."""
        self._guard_by(self._guard)
        # A fork has no such thread, and may have been made while that one held the guard.
        os.register_at_fork(after_in_child=lambda: self._guard_by(UNGUARDED))
        threading.Thread(target=self._watch, name="launchpad-log", daemon=True).start()

    def tell_of_trouble(self) -> None:
        """Says so if output was lost."""
        troubles = [b.trouble for b in self._buffers if b.trouble is not None]
        if troubles:
            self._tell(why_lost(troubles[0], str(self._path.parent)))
            self._tell = _say_nothing

    def print(self, text: str) -> None:
        """Adds a text, also when user code has closed or replaced the standard streams."""
        with contextlib.suppress(Exception):  # they may be anything
            print(text, file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError):
            os.write(self.fd, f"{text}\n".encode(errors="backslashreplace"))

    def _guard_by(self, guard: AbstractContextManager[Any]) -> None:
        for buffer in self._buffers:
            buffer.guard = guard

    def _watch(self) -> None:
        size, pause_s = 0, 0.1
        while True:
            time.sleep(pause_s)
            before, size = size, os.fstat(self.fd).st_size
            growth = size - before
            if self._rotation.is_due(size) and self._turn_between_lines():
                size = 0
            self.tell_of_trouble()
            pause_s = self._rotation.patience_s(size, growth, pause_s)

    def _turn_between_lines(self) -> bool:
        patient_until = time.monotonic() + _LONGEST_LINE_S
        while True:
            with self._guard:
                is_mid_line = any(buffer.is_mid_line for buffer in self._buffers)
                if not is_mid_line or time.monotonic() > patient_until:
                    return self._turn()
            time.sleep(0.001)

    def _turn(self) -> bool:
        """Turns the log over; False if that cannot be done now."""
        try:
            new = self._rotation.turn(self._path)
        except OSError:
            return False
        old = os.fstat(self.fd)
        for fd in (*_STANDARD, self.fd):
            with contextlib.suppress(OSError):  # closed by user code
                if os.path.samestat(os.fstat(fd), old):  # else it is user code's own now
                    os.dup2(new, fd, inheritable=fd in _STANDARD)
        os.close(new)
        return True


def _replace(name: str, buffer: UnfailingBuffer) -> None:
    """Makes it the standard stream of that name."""
    cast(io.FileIO, buffer.raw).name = f"<{name}>"
    stream = text_file(buffer, like=getattr(sys, name))
    for attribute in (name, f"__{name}__"):
        setattr(sys, attribute, stream)


def _say_nothing(text: str) -> None:
    """It has been said."""
