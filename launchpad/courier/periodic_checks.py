"""A thread that calls functions at regular intervals, as long as there are any to call."""

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
    """A set of functions, called again and again in one thread until they return False.

    Each is called with `time.monotonic()`.

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
        """Start calling `check`. Cheap if it is called already.

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
        """Have the thread run all checks now.

        Takes no lock, so it may be called from inside the garbage collector.
        """
        if self._thread is not None:
            self._wakeup.put(None)

    def drop_inherited(self) -> None:
        """Begin without checks and without a thread, in a forked child: the parent keeps both."""
        # Held to start and to end the thread: a check that is added either finds the thread running, and the
        # thread finds the check, or starts another thread.
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
            # Discard it before the call: if `add` comes while the check runs, its entry must stay.
            self._checks.discard(check)
            if check(now):
                self._checks.add(check)
        with self._lock:
            if not self._checks:
                self._thread = None
            return bool(self._checks)
