"""Parts that all steppers of streams' iterators share.

    server/stream_pump.py          the iterator that a method has returned
    client/argument_sender.py      an iterator among the arguments of a call

An item waits for the next one, to share a frame with it, as long as the iterator is quick. Should it block
then, what waits is written by another thread, or by the event loop.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable

STALL_S = 0.002  # an item waits no longer than about this for the next one, to be written with it
UNWATCH_S = 1.0  # an iterator that blocks for as long is not looked at any more


class StallClock:
    """The time for which a number has stood still, for a thread that looks at it now and then."""

    def __init__(self) -> None:
        self._number = 0
        self._since = 0.0

    def still_s(self, number: int, now: float) -> float:
        """Return how long it has been this number, as far as it was looked at."""
        if number != self._number:
            self._number = number
            self._since = now
        return now - self._since


class LoopFlush:
    """Calls a function as soon as the event loop runs anything else; once, however often it is asked to.

    Args:
        flush: Writes what waits. Its OSError is left to what writes next, or reads.
    """

    def __init__(self, flush: Callable[[], object]) -> None:
        self._flush = flush
        self._is_due = False

    def soon(self) -> None:
        """Have the running loop call it."""
        import asyncio

        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        with contextlib.suppress(OSError):
            self._flush()


def show_close_error() -> None:
    """Show the exception at hand, which closing a user's iterator raised and no caller can be given."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
