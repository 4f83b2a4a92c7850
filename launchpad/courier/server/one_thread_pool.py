"""The threads of a server whose calls run in one thread.

The one thread reads the calls itself: it polls, and serves the connections that have data, so that a call
costs no switch between threads. The other threads do work that may block, such as writing an answer for which
the client must first make room. While a call takes long, the other threads take over the reading. They queue
the calls that they read, for the one thread to run.

    the one thread     poll ──▶ connections: calls run where they are read ──▶ calls in the queue
    the others         watch; once a call has taken STALL_S: poll ──▶ connections: calls go into the queue
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from launchpad.courier.interruptions import Lock
from launchpad.courier.server.one_thread import OneThread, WaitingCall
from launchpad.courier.server.thread_pool import Job, ThreadPool

STALL_S = 0.002


class OneThreadPool(ThreadPool):
    """A pool that polls only while the one thread does not.

    Args:
        runs_in_one_thread: returns True for a polled job that the one thread runs. The other threads run the
            other jobs.
    """

    def __init__(
        self,
        name: str,
        size: int,
        poll: Callable[[float | None], Iterable[Job]],
        wake: Callable[[], None],
        on_many_threads: Callable[[], object],
        one_thread: OneThread,
        runs_in_one_thread: Callable[[Job], bool],
    ) -> None:
        super().__init__(name, size, self._poll_in_its_place, self.take_over, on_many_threads)
        self._one_thread = one_thread
        self._poll_all = poll
        self.wake_poller = wake
        self._runs_in_one_thread = runs_in_one_thread
        # The one thread, or the leader of the other threads, holds this lock while it polls. The poller takes
        # one thread at a time.
        self._poll_lock = Lock()
        # The one thread holds this lock while it reads or runs calls, so that `join` can wait for that.
        self._serving = Lock()
        self._changed = threading.Event()
        # `in_call_since` and `n_calls` of the one thread, when the leader of the other threads last looked.
        self._last_look = 0.0, 0
        one_thread.serve_for(self)

    def poll_and_serve(self) -> None:
        """Wait for something to do, and do it. The one thread calls this."""
        with self._serving:
            if not self._is_stopping:
                self._one_thread.leads = True
                self._poll_and_serve()

    def run_queued(self, call: WaitingCall) -> None:
        """Run a call from the queue. The one thread calls this, and `join` waits for it."""
        with self._serving:
            call.run()

    def stop(self) -> None:
        """Stop the one thread from reading, and let the other threads end. This doesn't wait for them."""
        self._one_thread.serve_for(None)
        super().stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the one thread's call and the other threads. Return False if some are still busy."""
        deadline = time.monotonic() + timeout_s
        is_free = threading.get_ident() == self._one_thread.thread
        if not is_free and self._serving.acquire(timeout=max(0.0, timeout_s)):
            self._serving.release()
            is_free = True
        return super().join(max(0.0, deadline - time.monotonic())) and is_free

    def _poll_and_serve(self) -> None:
        if not self._poll_lock.acquire(blocking=False):
            # Another thread is polling: make it return.
            self.wake_poller()
            self._poll_lock.acquire()
        try:
            # Another thread may have drained the wakeup that was meant for this one.
            timeout_s = 0.0 if self._is_stopping or self._one_thread.has_work else None
            jobs = list(self._poll_all(timeout_s))
        finally:
            self._poll_lock.release()
        for job in sorted(jobs, key=lambda job: not job.is_urgent):
            if self._runs_in_one_thread(job):
                job.run()
            else:
                self.submit(job)

    def _update_linger(self) -> None:
        self.may_linger = False
        self.is_calm = False

    def take_over(self) -> None:
        """Wake the poller, and make the leader of the other threads check at once if it must poll."""
        self._changed.set()
        self.wake_poller()

    def _poll_in_its_place(self, timeout_s: float | None) -> Iterable[Job]:
        """Poll if the one thread doesn't, else wait for a change. The other threads' leader calls this."""
        one_thread = self._one_thread
        in_call_since = one_thread.in_call_since
        n_calls = one_thread.n_calls
        is_unchanged = (in_call_since, n_calls) == self._last_look
        in_same_call = is_unchanged and in_call_since > 0
        is_quiet = is_unchanged and not in_call_since
        self._last_look = in_call_since, n_calls
        if in_same_call or not one_thread.leads:
            with self._poll_lock:
                if self._is_stopping:  # another thread may have drained the wakeup of `stop`
                    timeout_s = 0.0
                elif one_thread.leads:
                    timeout_s = STALL_S if timeout_s is None else min(STALL_S, timeout_s)
                return self._poll_all(timeout_s)
        wait_s = None if is_quiet else STALL_S
        if is_quiet:
            one_thread.on_next_call = self._changed.set
            # If a call began just before `on_next_call` was set, it did not wake this thread.
            if one_thread.n_calls != n_calls:
                wait_s = STALL_S
        if timeout_s is not None:
            wait_s = timeout_s if wait_s is None else min(wait_s, timeout_s)
        self._changed.wait(wait_s)
        self._changed.clear()
        return ()
