"""The threads that run methods: they take turns at waiting for work.

    follower ──woken──▶ leader ──work arrives──▶ running ──done──▶ follower (or retires)
                          │  wakes the next leader first

One thread leads: it waits for sockets (`poll`). When work arrives it first wakes a follower to
lead in its place, then runs the work itself, so that a call costs no hop between threads and
there is always a thread that watches. (Leader/Followers: Schmidt et al., 2000.)

`size` is how many jobs run side by side as a rule. A job that waits for its connection
(`is_waiting`) does not count. When `size` jobs run, work is queued, and no job has ended for a few
milliseconds, more are begun all the same: handlers that wait for each other's answers thus always
find a thread, and never deadlock. While the process is computing, the jobs may be too, and growth
is slow; while it is not, they must be blocked, and growth is fast. Threads without work for some
seconds retire.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

CROWD = 128
IDLE_S = 3.0  # a thread without work this long retires
_PATIENCE_S = 0.005  # no job ended for this long: the running ones are taken to be blocked


class Job(Protocol):
    """Something to run on a thread.

    `is_waiting` says that it waits for its peer, not for us; `is_urgent` that it overtakes others;
    `caller` names the process that it is done for, if it keeps its thread for that one.
    """

    is_waiting: bool
    is_urgent: bool
    caller: str

    def run(self) -> None: ...


class ThreadPool:
    """Daemon threads that lead, follow, and run jobs.

    Args:
        name: threads are called `<name>-1`, `<name>-2`, …
        size: jobs that run side by side as a rule.
        poll: waits up to so many seconds (None: without limit) and returns jobs; only ever called
            by one thread at a time.
        wake: makes `poll` return soon; called from any thread.
        on_crowd: called in a thread of its own when so many jobs wait for something that there are
            `CROWD` threads: they may be waiting for each other.
    """

    def __init__(
        self,
        name: str,
        size: int,
        poll: Callable[[float | None], Iterable[Job]],
        wake: Callable[[], None],
        on_crowd: Callable[[], object] = lambda: None,
    ) -> None:
        self._name = name
        self._size = max(1, size)
        self._poll = poll
        self._wake = wake
        self._on_crowd = on_crowd
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._running: set[Job] = set()
        self._visitors: set[object] = set()
        self._takes_visitors = True
        self._followers: list[threading.Lock] = []  # each sleeps on its own; the last one is warm
        self._threads: set[threading.Thread] = set()
        self._coming: set[object] = (
            set()
        )  # threads that were woken or started, and are not here yet
        self._has_leader = False
        self._is_stopping = False
        self._ended = 0  # jobs, ever
        self._started = 0  # threads, ever
        self._stuck: tuple[int, float, float] | None = None  # since when, and the CPU time then
        self._surplus = 0  # jobs to begin although `size` are running
        # A plain attribute, because it is read once per call: a job may keep its thread while it
        # waits for its peer, since nobody else needs the thread.
        self.may_linger = True
        self.is_calm = True  # all that runs, runs for one caller: nobody else is kept waiting

    def start(self) -> None:
        self._spawn()

    def submit(self, job: Job) -> None:
        """Runs `job` on some thread. Never blocks."""
        with self._lock:
            self._enqueue(job)
            self.may_linger = self.is_calm = False
            if self._followers and self._has_capacity():
                self._rouse()
                return
        self._wake()  # the leader takes it, or begins to count the milliseconds until it may

    def seat(self, visitor: object) -> bool:
        """Counts a thread from elsewhere, which runs something here, as one of the `size`.

        False, and it must not, when there is no room or others have been waiting.
        """
        with self._lock:
            n_busy = len(self._running) + len(self._visitors)
            if self._jobs or n_busy >= self._size or not self._takes_visitors:
                return False
            self._visitors.add(visitor)
            return True

    def unseat(self, visitor: object) -> None:
        """The visitor is done. Somebody else may have been waiting for its seat."""
        with self._lock:
            self._visitors.discard(visitor)
            self._ended += 1
            if not self._jobs:
                return
            if self._followers and self._has_capacity():
                self._followers.pop().release()
                return
        self._wake()

    def dismiss_visitors(self) -> None:
        """Lets no more in."""
        with self._lock:
            self._takes_visitors = False

    def await_visitors(self, deadline: float, but: Collection[object]) -> None:
        """Waits until all have gone, but for those that ask."""
        while not self._visitors.issubset(but) and time.monotonic() < deadline:
            time.sleep(0.001)

    def stop(self) -> None:
        """Threads end when they have no more work. Does not wait for them."""
        with self._lock:
            self._is_stopping = True
            while self._followers:
                self._rouse()
        self._wake()

    def join(self, timeout_s: float) -> bool:
        """Waits for the threads, but for the one that asks; False if some are still busy."""
        deadline = time.monotonic() + timeout_s
        while others := self._others():
            for thread in others:
                if thread.ident is None:
                    time.sleep(0.001)  # about to be started
                else:
                    thread.join(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                return not self._others()
        return True

    def take_left(self) -> list[Job]:
        """Jobs that were never begun; for after the stop."""
        with self._lock:
            left = list(self._jobs)
            self._jobs.clear()
            return left

    def _others(self) -> list[threading.Thread]:
        me = threading.current_thread()
        with self._lock:
            threads = tuple(self._threads)
        return [t for t in threads if t is not me and (t.ident is None or t.is_alive())]

    def _spawn(self) -> None:
        with self._lock:
            self._started += 1
            thread = threading.Thread(
                target=self._main, name=f"{self._name}-{self._started}", daemon=True
            )
            self._threads.add(thread)
            self._coming.add(thread)
            is_crowd = len(self._threads) == CROWD
        try:
            thread.start()
            if is_crowd:
                threading.Thread(
                    target=self._on_crowd, name=f"{self._name}-crowd", daemon=True
                ).start()
        except RuntimeError:  # out of threads: the ones we have must do, and lead when they can
            with self._lock:
                self._threads.discard(thread)
                self._coming.discard(thread)

    def _main(self) -> None:
        job = self._next(threading.current_thread())
        while job is not None:
            try:
                job.run()
            except BaseException:  # a mistake of ours; it must not cost the server a thread
                threading.excepthook(
                    threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                )
            self._end(job)
            job = None  # an idle thread must not keep what its last job has made
            job = self._next(None)

    def _end(self, done: Job) -> None:
        with self._lock:
            self._running.discard(done)
            self._ended += 1
            self._judge_lingering()

    def _next(self, came_as: object) -> Job | None:
        """The next job for this thread, which leads or follows until there is one."""
        while True:
            seat = None
            with self._lock:
                self._coming.discard(came_as)
                if self._jobs and self._has_capacity():
                    job: Job | None = self._begin()
                    needs_leader = self._promote()
                elif self._is_stopping:
                    return None
                elif self._has_leader:
                    job, needs_leader = None, False
                    seat = threading.Lock()
                    seat.acquire()
                    self._followers.append(seat)
                else:
                    self._has_leader = True
                    job, needs_leader = None, False
            if job is None:
                if seat is None:
                    job, needs_leader = self._lead()
                elif not self._follow(seat):
                    return None
                came_as = seat
            if needs_leader:
                self._spawn()
            if job is not None:
                return job

    def _lead(self) -> tuple[Job | None, bool]:
        """Waits for work as the one leader; gives up the lead when it returns."""
        while True:
            jobs = self._poll(0.0 if self._is_stopping else _PATIENCE_S if self._jobs else None)
            with self._lock:
                if not self._jobs:
                    self._stuck = None
                for job in jobs:
                    self._enqueue(job)
                self._judge_lingering()
                if self._jobs and (self._has_capacity() or self._may_grow()):
                    self._has_leader = False
                    return self._begin(), self._promote()
                if self._is_stopping and not jobs:
                    self._has_leader = False
                    return None, False

    def _follow(self, seat: threading.Lock) -> bool:
        """Sleeps until woken; False when this thread is to retire."""
        while not seat.acquire(timeout=IDLE_S):
            with self._lock:
                if seat not in self._followers:
                    return True  # woken in this very moment
                if len(self._followers) > 1:  # one stays, so that work need not wait for a start
                    self._followers.remove(seat)
                    self._threads.discard(threading.current_thread())
                    return False
        return True

    # The rest is called with the lock held.

    def _enqueue(self, job: Job) -> None:
        if job.is_urgent:
            self._jobs.appendleft(job)
        else:
            self._jobs.append(job)

    def _begin(self) -> Job:
        job = self._jobs.popleft()
        self._running.add(job)
        self._surplus = max(0, self._surplus - 1)
        self._judge_lingering()
        return job

    def _judge_lingering(self) -> None:
        self.may_linger = not self._jobs and len(self._running) <= max(self._size, 16)
        self.is_calm = self.may_linger and len({job.caller for job in self._running}) <= 1

    def _promote(self) -> bool:
        """Sees to it that somebody leads; True when that takes a new thread."""
        if self._has_leader and not (self._jobs and self._has_capacity()):
            return False
        if self._coming:  # it will see what there is to do; another one would find nothing left
            return False
        if self._followers:
            self._rouse()
            return False
        return not self._has_leader

    def _rouse(self) -> None:
        seat = self._followers.pop()
        self._coming.add(seat)
        seat.release()

    def _has_capacity(self) -> bool:
        size = self._size - len(self._visitors)
        if len(self._running) < size or self._surplus:
            return True
        return sum(not job.is_waiting for job in self._running) < size

    def _may_grow(self) -> bool:
        """Work is queued, and nothing has ended for a while: `_surplus` says how much to begin."""
        now, cpu = time.monotonic(), time.process_time()
        if self._stuck is None or self._stuck[0] != self._ended:
            self._stuck = (self._ended, now, cpu)
            return False
        _, since, cpu_then = self._stuck
        is_blocked = cpu - cpu_then < 0.5 * (now - since)
        patience_s = _PATIENCE_S * (1.0 if is_blocked else max(1.0, len(self._threads) / 32))
        if now - since < 0.9 * patience_s:
            return False
        self._surplus = max(1, len(self._running) // 4) if is_blocked else 1
        self._stuck = None
        return True
