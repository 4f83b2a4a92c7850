"""What Python does before a process exits, done by a worker itself, so that it can say what it waits for."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, cast


def run_exit_steps(note: Callable[[str], None]) -> None:
    """Waits for user threads, then calls exit functions, for as long as the supervisor lets it.

    Args:
        note: Called with what it is about to wait for.
    """

    def join_threads() -> None:
        main = threading.main_thread()
        theirs = [t.name for t in threading.enumerate() if t is not main and not t.daemon]
        if theirs:
            more = f" and {len(theirs) - 3} more" if len(theirs) > 3 else ""
            names = ", ".join(map(repr, theirs[:3]))
            note(f"its thread{'s' if len(theirs) > 1 else ''} {names}{more}")
        cast(Any, threading)._shutdown()

    def call_exit_functions() -> None:
        if atexit._ncallbacks():
            note("a function that it had registered with atexit")
        atexit._run_exitfuncs()

    ends: tuple[Callable[[], object], ...] = (
        join_threads,
        call_exit_functions,
        lambda: sys.stdout.flush(),  # exit functions may have replaced the streams
        lambda: sys.stderr.flush(),
    )
    for end in ends:
        with contextlib.suppress(BaseException):
            end()
