"""Streams that route the output of threads to the log file of their worker.

    print() in a worker's thread ──▶ ThreadStdout ──▶ logs/learner-0.log ──(Output)──▶ terminal
    print() anywhere else        ──▶ ThreadStdout ──▶ what sys.stdout was before

sys.stdout and sys.stderr are replaced while at least one program runs as threads in this process. Handlers of
`logging` that were made before keep the stream that they were given, so their streams are replaced, too.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from launchpad.courier import fork
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.logs.rotation import Rotation
from launchpad.runtime import context
from launchpad.runtime.context import RunContext
from launchpad.runtime.link import SupervisorLink

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Held while `_files` and the streams of `sys` change together. Workers begin and end in separate threads.
# Without the lock, the last one that ends could put the original streams back just after another one has
# begun.
_lock = fork.free_in_child(threading.Lock())
_files: dict[SupervisorLink, LogWriter] = {}
_NAMES = ("stdout", "stderr")
_routed: dict[str, ThreadStdout] = {}
"""The last stream of each name. `print` writes to sys.stdout and then flushes it, but holds no reference to
it. If the stream were freed in between, Python would crash (python/cpython#130163, until 3.13.3). So it is
kept here."""


@dataclass(eq=False, repr=False)
class ThreadStdout(threading.local):
    """A text stream that finds out, at each write, to which worker the thread belongs.

    It is not an `io` class, since objects of those flush when they are garbage-collected, in whatever thread
    that happens. The main thread's `flush` is a C function. Python calls it when a script's last line has
    run, and would forget a Ctrl-C that came while this call ran any Python code.
    """

    original: TextIO | None
    """None if its descriptor was closed when Python started. Then text for this stream is lost."""

    def __post_init__(self) -> None:  # called in each thread that uses the stream
        if self.original is not None and threading.current_thread() is threading.main_thread():
            vars(self)["flush"] = self.original.flush

    def write(self, text: str) -> int:
        """Write to the worker's log; outside workers, to the original stream."""
        target = self.target()
        return len(text) if target is None else target.write(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> ThreadBuffer:
        return ThreadBuffer(self)

    def flush(self) -> None:
        target = self.target()
        if target is not None:
            target.flush()

    def isatty(self) -> bool:
        """Return False in a worker, whose output is a file."""
        target = self.target()
        return target is not None and target.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def target(self) -> TextIO | LogWriter | None:
        """Return the stream that this thread's output goes to."""
        me = context.try_current()
        file = None if me is None else _files.get(me.link)
        return file or self.original


@dataclass(eq=False, repr=False)
class ThreadBuffer:
    """The stream of bytes below a `ThreadStdout`."""

    stdout: ThreadStdout

    def write(self, data: ReadableBuffer, /) -> int:
        """Write to the worker's log, or to the buffer of the original stream."""
        target = self.stdout.target()
        if isinstance(target, LogWriter):
            target.write_bytes(bytes(data))
        elif target is not None:
            return target.buffer.write(data)
        return memoryview(data).nbytes

    def writelines(self, lines: Iterable[ReadableBuffer], /) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.stdout.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self.stdout.original, "buffer", None), name)


def prepare() -> None:
    """Make the streams in the calling thread. If that is the main thread, it gets its own `flush`."""
    with _lock:
        for name in _NAMES:
            original = getattr(sys, name)
            stream = _routed.get(name)
            if stream is None or (original is not stream and original is not stream.original):
                _routed[name] = ThreadStdout(original)


def begin(worker: RunContext, path: Path, rotation: Rotation, warn: Callable[[str], None]) -> None:
    """From now on, route the output of this worker's threads to `path`."""
    prepare()
    with _lock:
        if not _files:
            for name in _NAMES:
                original = getattr(sys, name)
                stream = _routed[name]
                setattr(sys, name, stream)
                for handler in _log_handlers():
                    if original is not None and handler.stream is original:
                        handler.setStream(stream)
        _files[worker.link] = LogWriter(path, rotation, warn)


def end(worker: RunContext) -> None:
    """End the routing. What the worker's threads print after that goes to the original stream."""
    with _lock:
        file = _files.pop(worker.link, None)
        if file is not None:
            file.close()
        if not _files:
            for name in _NAMES:
                stream = getattr(sys, name)
                if isinstance(stream, ThreadStdout):
                    setattr(sys, name, stream.original)
            for handler in _log_handlers():
                if isinstance(handler.stream, ThreadStdout):
                    handler.setStream(handler.stream.original)


def _log_handlers() -> list[logging.StreamHandler[Any]]:
    """Return all handlers that write to a stream, including those inside other handlers, such as absl's."""
    handlers = [reference() for reference in logging._handlerList]  # type: ignore[attr-defined]
    # `logging.lastResort` reads sys.stderr each time, and has no stream of its own.
    return [h for h in handlers if isinstance(h, logging.StreamHandler) and "stream" in vars(h)]
