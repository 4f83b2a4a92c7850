"""Something to run on a thread of the pool, once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Work:
    """A function as a job.

    Example:
        pool.submit(Work(flush))
    """

    is_waiting = False
    is_urgent = False
    caller = ""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def run(self) -> None:
        _running.work = self
        try:
            self._run()
        finally:
            _running.work = None


class _Running(threading.local):
    work: Work | None = None


_running = _Running()


def wait_for(gate: threading.Lock) -> None:
    """Acquires the gate. If this thread runs Work, that does not count as running meanwhile."""
    work = _running.work
    if work is not None:
        work.is_waiting = True
    try:
        gate.acquire()
    finally:
        if work is not None:
            work.is_waiting = False
