"""The threads that run methods, and take turns at waiting for work (Leader/Followers).

    follower ──woken──▶ leader ──work arrives──▶ running ──done──▶ follower (or retires)
                          │  wakes the next leader first

One thread leads: it waits for sockets (`poll`). When work arrives, the leader first wakes a follower, which
leads next, and then runs the work itself. So no call moves between threads, and there is always a thread that
watches the sockets. (Schmidt et al., 2000.)

Normally `size` jobs run at once. Jobs that wait for their connection (`is_waiting`) don't count, nor do
jobs that the pool considers blocked. It considers all running jobs blocked if `size` jobs ran, work was
queued, no job ended for a few milliseconds, and the jobs' threads used little processor time. So methods
that wait for each other's answers always find a thread, and never deadlock. Even if hundreds of methods wait
for one event, calls begin as fast as they come. If the jobs compute, the pool begins only one more job at a
time. Threads without work for some seconds retire.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from launchpad.courier.interruptions import Lock
from launchpad.courier.own_threads import OwnThread

MANY_THREADS = 128
MANY_FOR_S = 1.0  # a deep recursion needs as many threads, too, but it ends
IDLE_S = 3.0  # a thread without work for this long retires
_BLOCKED_AFTER_S = 0.005  # if no job ends for this long, the running ones may be blocked


class Job:
    """A piece of work for a thread of the pool, which runs once each time it is queued.

    `is_waiting` means that the job waits for its peer, not for this process. `is_urgent` means that it
    overtakes other jobs. `caller` names the process that the job works for, if the job keeps its thread for
    that process.
    """

    is_waiting = False
    is_urgent = False
    caller = ""

    def run(self) -> None:
        raise NotImplementedError


class ThreadPool:
    """A pool of daemon threads that lead, follow, and run jobs.

    Args:
        name: threads are called `<name>-1`, `<name>-2`, …
        size: the number of jobs that normally run at once.
        poll: waits for at most the given number of seconds (None: without limit) and returns jobs. Only one
            thread at a time calls it.
        wake: makes `poll` return soon. Any thread may call it.
        on_many_threads: called in a separate thread when `MANY_THREADS` threads or more have had jobs for
            `MANY_FOR_S`: the jobs may be waiting for each other.
    """

    def __init__(
        self,
        name: str,
        size: int,
        poll: Callable[[float | None], Iterable[Job]],
        wake: Callable[[], None],
        on_many_threads: Callable[[], object] = lambda: None,
    ) -> None:
        self._name = name
        self._poll = poll
        self._wake = wake
        self._on_many_threads = on_many_threads
        # This lock is held for each decision about which thread does what. So for a queued job, there is
        # either a leader that will look at the queue, or a follower to wake.
        self._lock = Lock()
        self._jobs: deque[Job] = deque()
        self._running = RunningJobs(max(1, size))
        # Each follower sleeps on a lock of its own. The last one in the list began to sleep last, so its
        # caches are warm.
        self._followers: list[threading.Lock] = []
        self._threads: set[threading.Thread] = set()
        # Threads that were woken or started, and are not in `_next` yet.
        self._waking: set[object] = set()
        self._has_leader = False
        self._stopped = threading.Event()
        self._started = 0  # the number of threads started so far
        # `may_linger` and `is_calm` are plain attributes, because connections read them once per call. If
        # `may_linger` is True, a job may keep its thread while it waits for its peer, because no other job
        # needs the thread.
        self.may_linger = True
        # True if all running jobs work for one caller, so that no other caller is kept waiting.
        self.is_calm = True

    @property
    def _is_stopping(self) -> bool:
        return self._stopped.is_set()

    def submit(self, job: Job) -> None:
        """Run `job` on some thread of the pool. Never blocks."""
        with self._lock:
            self._enqueue(job)
            self.may_linger = False
            self.is_calm = False
            if self._followers and self._running.has_capacity():
                self._wake_follower()
                return
        # The leader takes the job, or starts to watch for jobs that are blocked.
        self._wake()

    def stop(self) -> None:
        """Let the threads end once they have no more work. Doesn't wait for them."""
        with self._lock:
            self._stopped.set()
            while self._followers:
                self._wake_follower()
        self._wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for all threads except the caller's. Return False if some are busy after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        me = threading.current_thread()
        while True:
            with self._lock:
                threads = tuple(self._threads)
            other_threads = [
                t for t in threads if t is not me and (t.ident is None or t.is_alive())
            ]
            if not other_threads or time.monotonic() >= deadline:
                return not other_threads
            for thread in other_threads:
                if thread.ident is None:
                    time.sleep(0.001)  # another thread is about to start it
                else:
                    thread.join(max(0.0, deadline - time.monotonic()))

    def take_unstarted(self) -> list[Job]:
        """Remove and return the jobs that never began. Call it after `stop`."""
        with self._lock:
            jobs = list(self._jobs)
            self._jobs.clear()
            return jobs

    def start_thread(self) -> None:
        """Start one thread, which leads or follows. The threads start more threads when needed."""
        with self._lock:
            self._started += 1
            thread = OwnThread(target=self._main, name=f"{self._name}-{self._started}")
            self._threads.add(thread)
            self._waking.add(thread)
            has_many_threads = len(self._threads) == MANY_THREADS
        try:
            thread.start()
            if has_many_threads:
                OwnThread(target=self._report_if_still_many, name=f"{self._name}-deadlock").start()
        except RuntimeError:  # the system is out of threads: the existing ones lead when they can
            with self._lock:
                self._threads.discard(thread)
                self._waking.discard(thread)

    def _report_if_still_many(self) -> None:
        if not self._stopped.wait(MANY_FOR_S) and len(self._running.threads) >= MANY_THREADS:
            self._on_many_threads()

    def _main(self) -> None:
        me = threading.get_ident()
        job = self._next(threading.current_thread())
        while job is not None:
            try:
                job.run()
            except BaseException:  # a bug of launchpad's; it must not cost the server a thread
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )
            with self._lock:
                self._running.end(job, me)
                self._update_linger()
            # An idle thread must not keep the objects of its last job alive.
            job = None
            job = self._next(None)

    def _next(self, woken_as: object) -> Job | None:
        """Lead or follow until there is a job for this thread. Return it, or None if the thread must end."""
        while True:
            waiter = None
            with self._lock:
                self._waking.discard(woken_as)
                if self._jobs and self._running.has_capacity():
                    job: Job | None = self._begin()
                    needs_leader = self._promote()
                elif self._is_stopping:
                    return None
                elif self._has_leader:
                    job = None
                    needs_leader = False
                    waiter = threading.Lock()
                    waiter.acquire()
                    self._followers.append(waiter)
                else:
                    self._has_leader = True
                    job = None
                    needs_leader = False
            if job is None:
                if waiter is None:
                    job, needs_leader = self._lead()
                elif not self._follow(waiter):
                    return None
                woken_as = waiter
            if needs_leader:
                self.start_thread()
            if job is not None:
                return job

    def _lead(self) -> tuple[Job | None, bool]:
        """Wait for work as the leader, then stop leading. Return a job, and True if a thread must start."""
        while True:
            timeout_s = None
            if self._is_stopping:
                timeout_s = 0.0
            elif self._jobs:
                timeout_s = _BLOCKED_AFTER_S
            jobs = self._poll(timeout_s)
            with self._lock:
                if not self._jobs:
                    self._running.forget_look()
                for job in jobs:
                    self._enqueue(job)
                self._update_linger()
                if self._jobs and (self._running.has_capacity() or self._may_grow()):
                    self._has_leader = False
                    return self._begin(), self._promote()
                if self._is_stopping and not jobs:
                    self._has_leader = False
                    return None, False

    def _follow(self, waiter: threading.Lock) -> bool:
        """Sleep until woken. Return False if this thread should retire."""
        while not waiter.acquire(timeout=IDLE_S):
            with self._lock:
                if waiter not in self._followers:
                    return True  # another thread woke this one just after the timeout
                # One follower stays, so that work need not wait for a thread to start.
                if len(self._followers) > 1:
                    self._followers.remove(waiter)
                    self._threads.discard(threading.current_thread())
                    return False
        return True

    # The caller of the following methods holds the lock.

    def _enqueue(self, job: Job) -> None:
        if job.is_urgent:
            self._jobs.appendleft(job)
        else:
            self._jobs.append(job)

    def _begin(self) -> Job:
        job = self._jobs.popleft()
        self._running.begin(job, threading.get_ident(), is_last=not self._jobs)
        self._update_linger()
        return job

    def _update_linger(self) -> None:
        running = self._running
        self.may_linger = not self._jobs and len(running.threads) <= max(running.size, 16)
        self.is_calm = self.may_linger and len({job.caller for job in running.threads}) <= 1

    def _promote(self) -> bool:
        """Wake a thread if no thread leads or a queued job may run. Return True if a thread must start."""
        if self._has_leader and not (self._jobs and self._running.has_capacity()):
            return False
        # A thread that is waking will see what there is to do, so no other thread is needed.
        if self._waking:
            return False
        if self._followers:
            self._wake_follower()
            return False
        return not self._has_leader

    def _wake_follower(self) -> None:
        waiter = self._followers.pop()
        self._waking.add(waiter)
        waiter.release()

    def _may_grow(self) -> bool:
        """Return True if no job has ended for a while, so that the running jobs may be blocked."""
        return self._running.may_grow(len(self._threads))


class _Look(NamedTuple):
    """A look at the running jobs that may be blocked."""

    n_ended: int  # the number of jobs that had ended by then
    at: float
    threads: list[int]
    cpu_time_s: float  # the sum over these threads


class RunningJobs:
    """The jobs that run. For each job that is considered blocked, one more may run.

    Not thread-safe: callers hold the pool's lock.

    Attributes:
        size: The number of jobs that normally run at once.
        threads: The thread that runs each job.
        blocked: The jobs that are considered blocked.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.threads: dict[Job, int] = {}
        self.blocked: set[Job] = set()
        self._most_unblocked = size  # the number of jobs that aren't blocked and may run
        self._ended = 0  # the number of jobs that have ended so far
        self._last_look: _Look | None = None

    def begin(self, job: Job, thread: int, *, is_last: bool) -> None:
        """Note that a job begins. `is_last` means that no other job is queued."""
        self.threads[job] = thread
        if is_last:
            self._most_unblocked = self.size

    def end(self, job: Job, thread: int) -> None:
        # A job that parks its connection may run again, in another thread, before this thread gets here.
        if self.threads.get(job) == thread:
            del self.threads[job]
        self.blocked.discard(job)
        self._ended += 1

    def has_capacity(self) -> bool:
        """Return True if one more job may run."""
        if len(self.threads) - len(self.blocked) < self._most_unblocked:
            return True
        active = (job for job in self.threads if not job.is_waiting and job not in self.blocked)
        return sum(1 for _ in active) < self._most_unblocked

    def forget_look(self) -> None:
        """Forget the last look for blocked jobs, because no job is queued."""
        self._last_look = None

    def may_grow(self, n_threads: int) -> bool:
        """Return True if no job has ended for a while, so that the running jobs may be blocked.

        Call it only while work is queued. `n_threads` is the number of the pool's threads.
        """
        now = time.monotonic()
        look = self._last_look
        if look is None or look.n_ended != self._ended:
            threads = [self.threads[job] for job in self.threads if job not in self.blocked]
            self._last_look = _Look(self._ended, now, threads, _cpu_time_s(threads))
            return False
        waited_s = now - look.at
        if waited_s < 0.9 * _BLOCKED_AFTER_S:
            return False
        # The threads run the same jobs as at the last look, because no job has ended.
        if _cpu_time_s(look.threads) - look.cpu_time_s < 0.5 * waited_s:
            self.blocked.update(job for job in self.threads if not job.is_waiting)
            self._most_unblocked = max(self.size, len(self.blocked) // 4)
        elif waited_s < 0.9 * _BLOCKED_AFTER_S * n_threads / 32:
            return False
        else:
            self._most_unblocked += 1
        self._last_look = None
        return True


def _cpu_time_s(threads: list[int]) -> float:
    """Return the CPU time that these threads have used, in seconds. The threads must be running."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return time.process_time()
    return sum(time.clock_gettime(time.pthread_getcpuclockid(thread)) for thread in threads)


class FunctionJob(Job):
    """A job that calls a function."""

    def __init__(self, run: Callable[[], None], *, is_urgent: bool = False) -> None:
        self._run = run
        self.is_urgent = is_urgent

    def run(self) -> None:
        _current.job = self
        try:
            self._run()
        finally:
            _current.job = None


_current = threading.local()  # its `job` is the FunctionJob that the thread runs, if any


def blocking_acquire(waiter: threading.Lock) -> None:
    """Acquire the lock. While this waits, the FunctionJob that this thread runs doesn't count as running."""
    job = getattr(_current, "job", None)
    if job is not None:
        job.is_waiting = True
    try:
        waiter.acquire()
    finally:
        if job is not None:
            job.is_waiting = False
