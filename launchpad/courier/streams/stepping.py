"""Parts shared by everything that steps streams' iterators.

    server/stream_pump.py          the iterator that a method has returned
    client/argument_sender.py      an iterator among the arguments of a call

While the iterator is quick, an item waits for the next one, to share a frame with it. If the iterator then
blocks, another thread or the event loop writes the items that wait.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable

STALL_S = 0.002  # about the longest that an item waits for the next one, to be written with it
UNWATCH_S = 1.0  # an iterator that has blocked for this long is not watched any more


class StallClock:
    """A clock for the time since a number last changed, for a thread that looks at it now and then."""

    def __init__(self) -> None:
        self._number = 0
        self._since = 0.0

    def still_s(self, number: int, now: float) -> float:
        """Return the seconds since the number was first seen to have this value."""
        if number != self._number:
            self._number = number
            self._since = now
        return now - self._since


class LoopFlush:
    """A function that the event loop calls as soon as it runs anything else.

    If `soon` is called several times before that, the function is still called once.

    Args:
        flush: Writes what waits. Its OSError is ignored, because the next write or read gets it, too.
    """

    def __init__(self, flush: Callable[[], object]) -> None:
        self._flush = flush
        self._is_due = False

    def soon(self) -> None:
        """Have the running loop call the function."""
        import asyncio

        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        with contextlib.suppress(OSError):
            self._flush()


def show_close_error() -> None:
    """Show the current exception, which closing a user's iterator raised. No caller would get it."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
