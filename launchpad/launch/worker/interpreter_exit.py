"""Python's steps before a process exits. A worker takes them itself, so that it can say what it waits for."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, cast


def run_exit_steps(note: Callable[[str], None]) -> None:
    """Wait for user threads, then call exit functions, for as long as the supervisor allows.

    Args:
        note: Called with a text that says what the worker is about to wait for.
    """
    with contextlib.suppress(BaseException):
        main = threading.main_thread()
        user_threads = [t.name for t in threading.enumerate() if t is not main and not t.daemon]
        if user_threads:
            more = f" and {len(user_threads) - 3} more" if len(user_threads) > 3 else ""
            names = ", ".join(map(repr, user_threads[:3]))
            note(f"its thread{'s' if len(user_threads) > 1 else ''} {names}{more}")
        cast(Any, threading)._shutdown()
    with contextlib.suppress(BaseException):
        if atexit._ncallbacks():
            note("a function that it had registered with atexit")
        atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):  # exit functions may have replaced the streams
        with contextlib.suppress(BaseException):
            getattr(sys, name).flush()
