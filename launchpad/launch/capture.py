"""What threads print goes to the log file of their worker.

    print() in a worker's thread ──▶ Router ──▶ logs/learner-0.log ──(Output)──▶ terminal
    print() anywhere else        ──▶ Router ──▶ what sys.stdout was before

sys.stdout and sys.stderr are replaced while at least one program runs as threads in this process.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from launchpad import context
from launchpad.context import RunContext

_lock = threading.Lock()
_files: dict[RunContext, TextIO] = {}
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

    def _target(self) -> TextIO:
        me = context.try_current()
        return (_files.get(me.whole or me) if me is not None else None) or self.original


def begin(worker: RunContext, path: Path) -> None:
    """From now on what this worker's threads print goes to `path`."""
    with _lock:
        if not _files:
            for name in _NAMES:
                setattr(sys, name, Router(getattr(sys, name)))
        _files[worker] = path.open("a", buffering=1, errors="backslashreplace")


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
