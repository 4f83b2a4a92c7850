"""What threads print goes to the log file of their worker.

    print() in a worker's thread ──▶ Router ──▶ logs/learner-0.log ──(Output)──▶ terminal
    print() anywhere else        ──▶ Router ──▶ what sys.stdout was before

sys.stdout and sys.stderr are replaced while at least one program runs as threads in this process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from launchpad import context
from launchpad.context import RunContext
from launchpad.launch.logs.rotation import Rotation, first_part
from launchpad.launch.logs.unfailing import UnfailingBuffer, text_file, why_lost

_lock = threading.Lock()
_files: dict[RunContext, WorkerLog] = {}
_NAMES = ("stdout", "stderr")


class Router:
    """A text stream that asks, at each write, whose thread this is.

    Not an `io` class: those flush when they are collected, in whatever thread that happens.
    """

    def __init__(self, original: TextIO) -> None:
        self.original = original

    def write(self, text: str) -> int:
        """Writes to the worker's log, or to the original stream outside workers."""
        return self._target().write(text)

    def flush(self) -> None:
        """Flushes the same."""
        self._target().flush()

    def isatty(self) -> bool:
        """False in a worker, whose output is a file."""
        return self._target().isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def _target(self) -> TextIO | WorkerLog:
        me = context.try_current()
        return (_files.get(me.whole or me) if me is not None else None) or self.original


class WorkerLog:
    """The log of a worker that is a thread, as a text stream for all its threads.

    Args:
      path: Where it is.
      rotation: When it is turned over: here by whoever has written the line that made it too large.
      tell: Told once, in words, when output is lost because the disk takes no more.
    """

    def __init__(self, path: Path, rotation: Rotation, tell: Callable[[str], None]) -> None:
        self._path, self._rotation, self._tell = path, rotation, tell
        self._lock = threading.RLock()  # a signal's handler may print while the main thread does
        self._has_told = False
        self._open(first_part(path))

    def write(self, text: str) -> int:
        """Adds to the log."""
        with self._lock:
            length = self._file.write(text)
            if "\n" in text:
                self._look_after_it()
        return length

    def flush(self) -> None:
        """Writes what was begun."""
        with self._lock:
            self._file.flush()

    def isatty(self) -> bool:
        """It is a file."""
        return False

    def close(self) -> None:
        """Closes the file; what is printed afterwards is an error, as with any closed stream."""
        with self._lock:
            self._file.close()

    def _open(self, fd: int) -> None:
        self._buffer = UnfailingBuffer(fd)
        self._file = text_file(self._buffer)

    def _look_after_it(self) -> None:
        if self._rotation.is_due(os.fstat(self._buffer.fileno()).st_size):
            with contextlib.suppress(OSError):  # the next line tries again
                new = self._rotation.turn(self._path)
                self._file.close()
                self._open(new)
        if self._buffer.trouble is not None and not self._has_told:
            self._has_told = True
            self._tell(why_lost(self._buffer.trouble, str(self._path.parent)))


def begin(worker: RunContext, path: Path, rotation: Rotation, tell: Callable[[str], None]) -> None:
    """From now on what this worker's threads print goes to `path`."""
    with _lock:
        if not _files:
            for name in _NAMES:
                setattr(sys, name, Router(getattr(sys, name)))
        _files[worker] = WorkerLog(path, rotation, tell)


def end(worker: RunContext) -> None:
    """Takes `begin` back; what the worker's threads still print goes where everybody's goes."""
    with _lock:
        file = _files.pop(worker, None)
        if file is not None:
            file.close()
        if not _files:
            for name in _NAMES:
                stream = getattr(sys, name)
                if isinstance(stream, Router):
                    setattr(sys, name, stream.original)


def terminal_stream() -> TextIO:
    """Where the launching script prints, past any router."""
    stream = sys.stdout
    return stream.original if isinstance(stream, Router) else stream
