"""Requests that wait to become a batch, and the threads that run batches.

    put ──▶ waiting ──enough of them, or the first is old enough──▶ a thread runs them as one batch

A thread is started when no thread is free, up to `parallelism` threads. A thread ends after a second without
requests. A thread that has nothing to run watches the age of the first request, so without requests there is
no timer. The threads have no caller's context, so no caller's deadline limits a batch.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.batching.batch import BatchedCall
from launchpad.courier.own_threads import OwnThread

IDLE_S = 1.0  # a thread ends after this long without requests


class Limits(NamedTuple):
    """The limits that decide when a batch is run, and how many batches run at once."""

    size: int
    parallelism: int
    timeout_s: float
    pads: bool  # True if a smaller batch is filled up to `size`


class BatchQueue:
    """A queue that collects requests and has them run in batches. Safe from any thread."""

    def __init__(self, name: str, limits: Limits, run: Callable[[list[BatchedCall]], None]) -> None:
        self._name = name
        self._limits = limits
        self._run = run
        self.drop_inherited()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Start afresh. A forked child has neither the parent's threads nor their callers."""
        # This lock is held to add requests and to take them. For a new request, either there is a thread that
        # will look for it, or a thread is started. A thread ends only when it has found no request.
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[BatchedCall] = deque()
        self.threads: set[threading.Thread] = set()  # the threads that run the batches
        self._n_asleep = 0

    def put(self, request: BatchedCall) -> None:
        """Add a request to the next batch. This never blocks."""
        with self._changed:
            self._waiting.append(request)
            if len(self._waiting) == 1 or len(self._waiting) % self._limits.size == 0:
                self._wake_thread()

    def _wake_thread(self) -> None:
        """Let an idle or new thread handle the waiting requests. Call this with the lock held."""
        if self._n_asleep:
            self._changed.notify()
        elif len(self.threads) < self._limits.parallelism:
            context = contextvars.Context()  # an empty context
            thread = OwnThread(target=context.run, args=(self._main,), name=f"batch-{self._name}")
            self.threads.add(thread)
            try:
                thread.start()
            except RuntimeError:  # out of threads
                self.threads.discard(thread)
                if not self.threads:  # no thread will ever take this request
                    self._waiting.pop()
                    raise

    def _main(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                return
            self._run(batch)
            del batch  # an idle thread must not keep requests and their objects alive

    def _take(self) -> list[BatchedCall]:
        """Wait until a batch can run, and return it. An empty batch means that the thread must end."""
        idle_until = time.monotonic() + IDLE_S
        with self._changed:
            while True:
                now = time.monotonic()
                if not self._waiting:
                    until = idle_until
                elif len(self._waiting) >= self._limits.size:
                    until = 0.0
                else:
                    until = self._waiting[0].since + self._limits.timeout_s
                if until > now:
                    self._n_asleep += 1
                    self._changed.wait(until - now)
                    self._n_asleep -= 1
                elif not self._waiting:
                    self.threads.discard(threading.current_thread())
                    return []
                else:
                    batch = self._pop()
                    if batch:
                        return batch

    def _pop(self) -> list[BatchedCall]:
        """Return a batch of waiting requests, without those that were cancelled."""
        batch: list[BatchedCall] = []
        while self._waiting and len(batch) < self._limits.size:
            request = self._waiting.popleft()
            if request.begin():
                batch.append(request)
        if self._waiting:
            self._wake_thread()
        return batch
