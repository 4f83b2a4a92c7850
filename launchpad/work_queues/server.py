"""WorkQueueServer: the server of a WorkQueueNode.

Clients may repeat calls. If a call comes twice, it takes effect once, and both times it gets the same answer.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Hashable, Sequence
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.courier.promise import Promise
from launchpad.runtime import context
from launchpad.runtime.callers import Caller, caller
from launchpad.services.requests import AnsweredRequests
from launchpad.services.waiting import WaitingCalls
from launchpad.work_queues.job_table import FinishedJob, JobCounts, JobTable

OVER = "over"
_KEPT_ADDERS = 10_000
# The largest answer, in results and in bytes. A single larger result is sent alone.
_MOST_RESULTS = 1000
_MOST_BYTES = 4 << 20
_LOOK_S = 0.05

Cursor = tuple[str, int]
"""An id of the attempt of the queue's worker, and the number of finished jobs that the client has seen."""
Finished = tuple[list[FinishedJob], Cursor, bool]
"""Finished jobs, the cursor after them, and True if these are the last jobs."""
Leased = tuple[Hashable, Any, int, str]
"""The key, the job, the number of the attempt at the job, and the lease."""


class WorkQueueServer:
    """A server that gives jobs to workers, and keeps their results. Safe from any thread.

    Args:
        max_attempts: The largest number of attempts at a job.
        lease_s: How long a lease lasts, in seconds. With None, it lasts until its worker ends.
    """

    def __init__(self, max_attempts: int, lease_s: float | None) -> None:
        self._table = JobTable(max_attempts, lease_s)
        self._calls = WaitingCalls("work-queue")
        # The lines are not ordered: a repeated call must get the job that it got before, and each reader of
        # results has its own cursor.
        self._takers = self._calls.line(is_ordered=False)
        self._readers = self._calls.line(is_ordered=False)
        self._added = AnsweredRequests[list[Hashable]](_KEPT_ADDERS)
        self._look_at = 0.0
        """When to check next for leases that have ended."""
        self._start = os.urandom(8).hex()
        self._leases = (f"{self._start}-{n}" for n in itertools.count())
        me = context.try_current()
        # Keep a reference to the link, because leases also end in threads that have no context.
        self._link = None if me is None else me.link
        if self._link is not None:
            self._link.watch_ends(self._on_end)

    def add(
        self, adder: str, number: int, jobs: Sequence[tuple[Hashable | None, Any]]
    ) -> list[Hashable]:
        """Add jobs, and return their keys.

        `adder` is the session of a client. Each of its numbered calls takes effect once.
        """
        with self._calls.changing():
            return self._added.once(adder, lambda: self._add(jobs), number)

    def take(self, request: str, wait_s: float) -> Leased | str | Promise | None:
        """Return a job, `OVER` if no more jobs will come, or None if no job comes within `wait_s`."""
        taker = caller()
        table = self._table

        def is_ready() -> bool:
            self._end_leases()
            return table.can_take(request) or table.is_over

        def take() -> Leased | str:
            job = table.take(taker, request, next(self._leases), time.monotonic())
            if job is None or job.leased_to is None:
                return OVER
            return job.key, job.value, len(job.reasons) + 1, job.leased_to.lease

        with self._calls.changing():
            return self._calls.answer(self._takers, is_ready, take, lambda: None, wait_s)

    def done(self, key: Hashable, lease: str, result: Any) -> bool:
        """Take the result of a job. False if the lease doesn't count any more."""
        with self._calls.changing():
            self._end_leases()
            return self._table.done(key, lease, result)

    def give_back(self, key: Hashable, lease: str, reason: str) -> bool:
        """End a lease. With a reason, the job counts as tried."""
        with self._calls.changing():
            return self._table.give_back(key, lease, reason)

    def extend(self, key: Hashable, lease: str) -> bool:
        """Extend a lease, so that it ends `lease_s` seconds from now. False if it has ended already."""
        with self._calls.changing():
            self._end_leases()
            return self._table.extend(key, lease, time.monotonic())

    def close(self) -> None:
        """Close the queue to new jobs."""
        with self._calls.changing():
            self._table.is_closed = True

    def counts(self) -> JobCounts:
        """Return the number of jobs in each state."""
        with self._calls.changing():
            self._end_leases()
            return self._table.counts()

    def finished(self, after: Cursor | None, wait_s: float) -> Finished | Promise | None:
        """Return the jobs that have finished after a cursor, or None if no job finishes within `wait_s`.

        With a cursor from an earlier attempt of the queue's worker, start again with the first job, because
        the queue may have gone back to its saved state.
        """
        begin = after[1] if after is not None and after[0] == self._start else 0
        table = self._table

        def is_ready() -> bool:
            self._end_leases()
            return len(table.finished) > begin or table.is_over

        def page() -> Finished:
            jobs = _page(table.finished[begin : begin + _MOST_RESULTS])
            end = begin + len(jobs)
            return jobs, (self._start, end), table.is_over and end == len(table.finished)

        with self._calls.changing():
            return self._calls.answer(self._readers, is_ready, page, lambda: None, wait_s)

    def save(self) -> Any:
        with self._calls.changing():
            return self._table.copy(), self._added.copy()

    def restore(self, saved: Any) -> None:
        before: JobTable
        before, self._added = saved
        before.max_attempts = self._table.max_attempts
        before.lease_s = self._table.lease_s
        before.restart()
        self._table = before

    def _add(self, jobs: Sequence[tuple[Hashable | None, Any]]) -> list[Hashable]:
        if self._table.is_closed:
            raise ValueError("the work queue is closed: no more jobs can be added")
        keys: list[Hashable] = []
        for key, value in jobs:
            own_key = len(self._table.jobs)
            while key is None and own_key in self._table.jobs:
                own_key += 1
            keys.append(own_key if key is None else key)
            self._table.add(keys[-1], value)
        return keys

    def _on_end(self, worker: str, attempt: int) -> None:
        """End the leases of a worker that has ended. launchpad calls this in a thread of its own."""
        with self._calls.changing():
            self._look_at = 0.0
            self._end_leases()

    def _end_leases(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = math.inf if self._table.lease_s is None else now + _LOOK_S
        self._table.end_leases(self._has_ended, now)

    def _has_ended(self, holder: Caller) -> bool:
        return self._link is not None and self._link.has_ended(holder.worker, holder.attempt)


def _page(finished: Sequence[FinishedJob]) -> list[FinishedJob]:
    """Return the first of these jobs, as many as one answer may hold."""
    page: list[FinishedJob] = []
    bytes_left = _MOST_BYTES
    for job in finished:
        body, buffers = pickling.encode((job.key, job.result, job.reasons))
        bytes_left -= len(body) + sum(buffer.nbytes for buffer in buffers)
        if bytes_left < 0 and page:
            break
        page.append(job)
    return page
