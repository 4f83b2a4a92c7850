"""The lifetime of a program in the process that launched it, and the threads that wait for changes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from launchpad.courier import fork
from launchpad.courier.deadlines import check_timeout
from launchpad.errors import NotRunningError

_SIGNAL_S = 0.2
"""Seconds after which a wait starts again. CPython looks for signals before it waits for a lock. A signal
that comes after that, while the handler of another signal returns, stays pending, and does not interrupt the
wait."""


class Lifetime:
    """The time from the launch of a program until nothing of it is left.

    Attributes:
        changed: A condition. Its lock is held while the supervisor's state changes, and each change of
            interest notifies it.
        done: Set when the program has ended and nothing of it is left.
    """

    def __init__(self, program: str) -> None:
        self.changed = fork.free_in_child(threading.Condition())
        self.done = threading.Event()
        self._program = program
        self._pid = os.getpid()
        self._began = time.monotonic()
        self._ended = 0.0

    @property
    def is_here(self) -> bool:
        """True in the launching process; False in a forked child, where the runner's thread does not run."""
        return os.getpid() == self._pid

    @property
    def uptime_s(self) -> float:
        """The seconds that the program has run so far, or ran until its end."""
        return (self._ended or time.monotonic()) - self._began

    def refuse_in_fork(self) -> None:
        """Raise NotRunningError in a forked child."""
        if not self.is_here:
            raise NotRunningError(
                f"this process was forked from process {self._pid}, which launched program"
                f" {self._program!r}: only there it can be waited for, asked or stopped. From here call"
                f" os.kill({self._pid}, signal.SIGTERM), or `python -m launchpad stop {self._pid}`."
            )

    def wait_until(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `is_over()`. Return False if the time is up. Signals can interrupt the wait."""
        check_timeout(timeout_s)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            with self.changed:
                if self.changed.wait_for(is_over, min(left_s, _SIGNAL_S)):
                    return True
            if left_s <= _SIGNAL_S:
                return False

    def end(self) -> None:
        """Note that nothing of the program is left, and wake all threads that wait."""
        with self.changed:
            self._ended = time.monotonic()
            self.done.set()
            self.changed.notify_all()
