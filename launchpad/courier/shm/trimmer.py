"""The thread that gives memory back which nobody has used for a while.

It lives only as long as there is something to look at.
"""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue
from typing import Protocol

from launchpad.courier import fork

_INTERVAL_S = 1.0


class Trimmable(Protocol):
    """Something with memory that it may give back."""

    def trim(self, now: float) -> bool:
        """Gives back what has been idle; False if there is nothing left to look at."""
        ...


class Trimmer:
    """Calls `trim` of each thing it watches about once a second, until that returns False."""

    _thread: threading.Thread | None

    def __init__(self) -> None:
        self._reset()
        fork.drop_in_child(self)

    def watch(self, trimmable: Trimmable) -> None:
        """From now on; cheap if it is being watched already."""
        if trimmable in self._trimmables:
            return
        with self._lock:
            self._trimmables.add(trimmable)
            if self._thread is None:
                thread = threading.Thread(target=self._main, name="courier-trimmer", daemon=True)
                with contextlib.suppress(RuntimeError):  # out of threads: the next watch tries anew
                    thread.start()
                    self._thread = thread

    def check(self) -> None:
        """Makes it look now. Takes no lock, so it may be called from inside the garbage collector."""
        if self._thread is not None:
            self._wakeup.put(None)

    def drop_inherited(self) -> None:
        """For a forked child: the thread is the parent's, and so is what it watched."""
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._wakeup: SimpleQueue[None] = SimpleQueue()
        self._trimmables: set[Trimmable] = set()
        self._thread = None

    def _main(self) -> None:
        while self._trim():
            with contextlib.suppress(Empty):
                self._wakeup.get(timeout=_INTERVAL_S)
                while True:
                    self._wakeup.get_nowait()

    def _trim(self) -> bool:
        now = time.monotonic()
        for each in tuple(self._trimmables):
            self._trimmables.discard(each)  # before, because `watch` may come while it looks
            if each.trim(now):
                self._trimmables.add(each)
        with self._lock:
            if not self._trimmables:
                self._thread = None
            return bool(self._trimmables)


trimmer = Trimmer()
