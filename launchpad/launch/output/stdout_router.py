"""Routes what threads print to the log file of their worker.

    print() in a worker's thread ──▶ ThreadStdout ──▶ logs/learner-0.log ──(Output)──▶ terminal
    print() anywhere else        ──▶ ThreadStdout ──▶ what sys.stdout was before

sys.stdout and sys.stderr are replaced while at least one program runs as threads in this process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from launchpad import context
from launchpad.context import RunContext
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.logs.rotation import Rotation

_lock = threading.Lock()
_files: dict[RunContext, LogWriter] = {}
_NAMES = ("stdout", "stderr")


@dataclass(eq=False, repr=False)
class ThreadStdout:
    """A text stream that finds out, at each write, to which worker the thread belongs.

    Not an `io` class: those flush when they are collected, in whatever thread that happens.
    """

    original: TextIO

    def write(self, text: str) -> int:
        """Writes to the worker's log, or to the original stream outside workers."""
        return self._target().write(text)

    def flush(self) -> None:
        """Flushes the worker's log, or the original stream."""
        self._target().flush()

    def isatty(self) -> bool:
        """False in a worker, whose output is a file."""
        return self._target().isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def _target(self) -> TextIO | LogWriter:
        me = context.try_current()
        return (_files.get(me.parent or me) if me is not None else None) or self.original


def begin(worker: RunContext, path: Path, rotation: Rotation, warn: Callable[[str], None]) -> None:
    """Routes what this worker's threads print to `path`, from now on."""
    with _lock:
        if not _files:
            for name in _NAMES:
                setattr(sys, name, ThreadStdout(getattr(sys, name)))
        _files[worker] = LogWriter(path, rotation, warn)


def end(worker: RunContext) -> None:
    """Ends what `begin` began; what the worker's threads still print goes to the original stream."""
    with _lock:
        file = _files.pop(worker, None)
        if file is not None:
            file.close()
        if not _files:
            for name in _NAMES:
                stream = getattr(sys, name)
                if isinstance(stream, ThreadStdout):
                    setattr(sys, name, stream.original)
