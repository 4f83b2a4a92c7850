"""A thread that looks after things from time to time, for as long as there are any."""

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
    """Calls each function that it is given with `time.monotonic()`, until that returns False.

    Args:
        name: of its thread.
        interval_s: between two checks.
    """

    _thread: threading.Thread | None

    def __init__(self, name: str, interval_s: float) -> None:
        self._name = name
        self._interval_s = interval_s
        self.drop_inherited()
        fork.drop_in_child(self)

    def add(self, check: Callable[[float], bool]) -> None:
        """From now on; cheap if it is there already. RuntimeError: there can be no new thread."""
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
        """Makes it look now. Takes no lock, so it may be called from inside the garbage collector."""
        if self._thread is not None:
            self._wakeup.put(None)

    def drop_inherited(self) -> None:
        """For a forked child: the thread is the parent's, and so is what it looked after."""
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
            self._checks.discard(check)  # before, because `add` may come while it looks
            if check(now):
                self._checks.add(check)
        with self._lock:
            if not self._checks:
                self._thread = None
            return bool(self._checks)
