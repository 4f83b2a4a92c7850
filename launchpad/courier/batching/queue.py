"""Requests that wait to become a batch, and the threads that run batches.

    put ──▶ waiting ──size of them, or the first is old enough──▶ a thread runs them as one batch

A thread is started when there is none to spare, at most `parallelism`, and ends after a second
without requests. One that has nothing to run watches over the age of the first request: no
requests, no timer. The threads know no caller: no deadline or other context of one reaches a batch.
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

IDLE_S = 1.0  # a thread without requests this long ends


class Limits(NamedTuple):
    """When a batch is run, and how many at once."""

    size: int
    parallelism: int
    timeout_s: float
    pads: bool  # a smaller batch is made of that size


class BatchQueue:
    """Collects requests and has them run in batches. Safe from any thread."""

    def __init__(self, name: str, limits: Limits, run: Callable[[list[BatchedCall]], None]) -> None:
        self._name = name
        self._limits = limits
        self._run = run
        self.drop_inherited()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """As new: a forked child has neither the threads of its parent nor their callers."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[BatchedCall] = deque()
        self.threads: set[threading.Thread] = set()  # that run the batches
        self._n_asleep = 0

    def put(self, request: BatchedCall) -> None:
        """Adds a request to the next batch. Never blocks."""
        with self._changed:
            self._waiting.append(request)
            if len(self._waiting) == 1 or len(self._waiting) % self._limits.size == 0:
                self._wake_thread()

    def _wake_thread(self) -> None:
        """Has a thread look after what waits: one that is asleep, or a new one. With the lock held."""
        if self._n_asleep:
            self._changed.notify()
        elif len(self.threads) < self._limits.parallelism:
            context = contextvars.Context()  # an empty one
            thread = OwnThread(target=context.run, args=(self._main,), name=f"batch-{self._name}")
            self.threads.add(thread)
            try:
                thread.start()
            except RuntimeError:  # out of threads
                self.threads.discard(thread)
                if not self.threads:  # no other thread will come for it
                    self._waiting.pop()
                    raise

    def _main(self) -> None:
        while batch := self._take():
            self._run(batch)
            del batch  # an idle thread keeps no request, and no object that it was for

    def _take(self) -> list[BatchedCall]:
        """Waits for a batch to run; returns none when the thread is to end."""
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
                elif batch := self._pop():
                    return batch

    def _pop(self) -> list[BatchedCall]:
        """A batch of what waits, without those that were cancelled."""
        batch: list[BatchedCall] = []
        while self._waiting and len(batch) < self._limits.size:
            request = self._waiting.popleft()
            if request.begin():
                batch.append(request)
        if self._waiting:
            self._wake_thread()
        return batch
