"""The threads that run the callbacks of futures. A callback may wait for anything, even for other futures.

    completed by a reader ──submit──▶ jobs ──▶ runner: one after the other
                                       ▲
                                       └── watcher: if the runner has run one callback for `_STALL_S` and
                                           others are queued, it starts another runner for them

Usually there is only one thread, which ends when it has nothing to do. All clients of the process share these
threads.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from launchpad.courier import fork
from launchpad.courier.interruptions import Condition
from launchpad.courier.own_threads import OwnThread

_STALL_S = 0.02
_IDLE_S = 0.1  # an idle thread ends after this time, because a new one starts quickly

Callback = Callable[[Future[Any]], object]

#: Callbacks from these modules are known to only notify another thread.
_QUICK = ("asyncio.", "launchpad.")


def is_quick(callback: Callback) -> bool:
    """Return True if the callback may run on the thread that completes the future."""
    return (getattr(callback, "__module__", None) or "").startswith(_QUICK)


class CallbackThreads:
    """The threads that run callbacks. Safe from any thread."""

    def __init__(self) -> None:
        self.drop_inherited()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Start afresh in a forked child, in which none of the threads runs."""
        # This condition's lock is held to add a job and to decide which thread runs it. Either a runner
        # exists that will take the new job, or a runner is started.
        self._changed = Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._runner: threading.Thread | None = None  # the thread that takes jobs
        self._is_idle = False  # the runner waits for jobs, or is about to
        self._has_watcher = False
        self._n_taken = 0

    def submit(self, callback: Callback, future: Future[Any]) -> None:
        """Run `callback(future)` soon on another thread, or here if no thread can be started."""
        job = partial(_call, callback, future)
        with self._changed:
            if self._runner is not None or self._start_runner():
                self._jobs.append(job)
                if self._is_idle:
                    self._changed.notify_all()
                else:
                    self._ensure_watcher()
                return
        job()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                if self._runner is not me:
                    return  # another thread has taken over
                self._is_idle = True
                self._changed.wait_for(lambda: self._jobs, _IDLE_S)
                self._is_idle = False
                if not self._jobs:
                    self._runner = None
                    return
                job = self._jobs.popleft()
                self._n_taken += 1
                if self._jobs:
                    self._ensure_watcher()
            job()
            del job  # an idle thread must not keep a future and its value alive

    def _watch(self) -> None:
        with self._changed:
            while self._jobs:
                n_taken = self._n_taken
                self._changed.wait(_STALL_S)
                if self._jobs and self._n_taken == n_taken and not self._is_idle:
                    self._start_runner()  # it replaces the runner that is blocked
                    break
            self._has_watcher = False

    # The following methods are called with the lock held.

    def _start_runner(self) -> bool:
        """Start a runner. Return False if no more threads can be started."""
        runner = OwnThread(target=self._run, name="courier-callbacks")
        with contextlib.suppress(RuntimeError):
            # The thread may start before `_runner` is set, but its first step waits for the lock.
            runner.start()
            self._runner = runner
            self._is_idle = True
            return True
        return False

    def _ensure_watcher(self) -> None:
        if not self._has_watcher:
            name = "courier-callbacks-watcher"
            with contextlib.suppress(RuntimeError):
                OwnThread(target=self._watch, name=name).start()
                self._has_watcher = True


def _call(callback: Callback, future: Future[Any]) -> None:
    try:
        callback(future)
    except Exception:  # log it as `Future` does
        log = logging.getLogger("concurrent.futures")
        log.exception("exception calling callback for %r", future)
    except BaseException:  # the error must not end this thread, which runs other callbacks
        threading.excepthook(
            threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
        )


_threads = CallbackThreads()
submit = _threads.submit
