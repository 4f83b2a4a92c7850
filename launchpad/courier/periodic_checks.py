"""A thread that calls functions at regular intervals, and ends when there are no functions left to call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock, in_another_thread
from launchpad.courier.own_threads import OwnThread


class PeriodicChecks:
    """A set of functions. One thread calls each of them again and again until it returns False.

    The argument of each call is `time.monotonic()`.

    Args:
        name: the name of the thread.
        interval_s: the time between two checks.
    """

    _thread: threading.Thread | None

    def __init__(self, name: str, interval_s: float) -> None:
        self._name = name
        self._interval_s = interval_s
        self.drop_inherited()
        fork.drop_in_child(self)

    def add(self, check: Callable[[float], bool]) -> None:
        """Start calling `check`. This is cheap if the thread calls `check` already.

        Raises RuntimeError if no thread can be started.
        """
        if self._thread is not None and check in self._checks:
            return
        in_another_thread(self._add, check)

    def _add(self, check: Callable[[float], bool]) -> None:
        with self._lock:
            self._checks.add(check)
            if self._thread is None:
                thread = OwnThread(target=self._main, name=self._name)
                thread.start()
                self._thread = thread

    def check_now(self) -> None:
        """Make the thread run all checks now.

        This takes no lock, so it may be called from inside the garbage collector.
        """
        if self._thread is not None:
            self._wakeup.put(None)

    def drop_inherited(self) -> None:
        """Begin without checks and without a thread in a forked child. The parent keeps its own."""
        # `_add` holds this lock to start the thread, and the thread holds it to end. If `_add` finds the
        # thread running, the thread finds the new check; otherwise `_add` starts another thread.
        self._lock = Lock()
        self._wakeup: SimpleQueue[None] = SimpleQueue()
        self._checks: set[Callable[[float], bool]] = set()
        self._thread = None

    def _main(self) -> None:
        while self._check_all():
            with contextlib.suppress(Empty):
                self._wakeup.get(timeout=self._interval_s)
                while True:
                    self._wakeup.get_nowait()

    def _check_all(self) -> bool:
        now = time.monotonic()
        for check in tuple(self._checks):
            # Discard the check before calling it. If `add` adds it again while it runs, that entry must stay.
            self._checks.discard(check)
            if check(now):
                self._checks.add(check)
        with self._lock:
            if not self._checks:
                self._thread = None
            return bool(self._checks)
