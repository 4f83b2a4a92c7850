"""The stacks of threads, as text: what each of them is doing now."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable, Iterator

from launchpad.context import RunContext


def of_thread(thread: threading.Thread) -> str:
    """Where one thread is, most recent call last; empty when it has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return ""
    lines = "".join(traceback.format_stack(frame))
    return f"Thread {thread.name} (most recent call last):\n{lines}"


def of_worker(context: RunContext, main: Iterable[threading.Thread] = ()) -> str:
    """Where the threads of a worker are, which is itself a thread here: its own, and those it started."""
    mine = [*main, *(t for t in threading.enumerate() if _belongs(t, context))]
    return "\n".join(filter(None, map(of_thread, dict.fromkeys(mine))))


def _belongs(thread: threading.Thread, context: RunContext) -> bool:
    theirs = getattr(thread, "launchpad_context", None)
    return isinstance(theirs, RunContext) and context in _wholes(theirs)


def _wholes(context: RunContext) -> Iterator[RunContext]:
    yield context
    if context.whole is not None:
        yield context.whole
