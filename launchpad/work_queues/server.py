"""WorkQueueServer: what a WorkQueueNode serves. Coroutines of one event loop, so no lock is needed.

Its clients repeat calls: each method gives the same answer, and has the same effect, if it is called twice.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from launchpad.courier.codec import pickling
from launchpad.runtime import context
from launchpad.runtime.callers import caller, has_ended
from launchpad.services.long_poll import Changes
from launchpad.work_queues.job_table import FinishedJob, JobCounts, JobTable

OVER = "over"
_KEPT_ADDERS = 10_000
_MOST_RESULTS, _MOST_BYTES = 1000, 4 << 20  # of one answer, but for a result that is larger
_LOOK_S = 0.05

Cursor = tuple[str, int]
"""A start of the queue, and how many finished jobs were seen."""
Finished = tuple[list[FinishedJob], Cursor, bool]
"""Jobs, where to go on, and whether these are the last."""
Leased = tuple[Hashable, Any, int, str]
"""Key, job, which attempt at it, lease."""


class WorkQueueServer:
    """Gives jobs to workers, and keeps their results.

    Args:
        max_attempts: How often a job is tried.
        lease_s: How long a lease holds; None: until its worker ends.
    """

    def __init__(self, max_attempts: int, lease_s: float | None) -> None:
        self._table = JobTable(max_attempts, lease_s)
        self._changes = Changes()
        self._last_added: OrderedDict[str, tuple[int, list[Hashable]]] = OrderedDict()
        self._look_at = 0.0
        """When it is to be looked next whether leases have ended."""
        self._start = os.urandom(8).hex()
        self._leases = (f"{self._start}-{n}" for n in itertools.count())
        me = context.try_current()
        if me is not None:
            me.link.watch_ends(self._on_end)

    async def add(
        self, adder: str, number: int, jobs: Sequence[tuple[Hashable | None, Any]]
    ) -> list[Hashable]:
        """Adds jobs, returns their keys; the n-th call of an adder, an object in a client, counts once."""
        last, keys = self._last_added.get(adder, (0, []))
        if number <= last:
            return keys
        if self._table.is_closed:
            raise ValueError("the work queue is closed: no more jobs can be added")
        keys = []
        for key, value in jobs:
            own_key = len(self._table.jobs)
            while key is None and own_key in self._table.jobs:
                own_key += 1
            keys.append(own_key if key is None else key)
            self._table.add(keys[-1], value)
        self._last_added[adder] = number, keys
        self._last_added.move_to_end(adder)
        if len(self._last_added) > _KEPT_ADDERS:
            self._last_added.popitem(last=False)
        self._changes.wake()
        return keys

    async def take(self, request: str, wait_s: float) -> Leased | str | None:
        """A job; `OVER` if there will be none any more; None if there is none within the time."""
        who = caller()
        deadline = time.monotonic() + wait_s
        while True:
            self._end_leases()
            now = time.monotonic()
            if not who.is_gone:
                job = self._table.take(who, request, next(self._leases), now)
                if job is not None and job.leased_to is not None:
                    return job.key, job.value, len(job.reasons) + 1, job.leased_to.lease
            if self._table.is_over:
                return OVER
            if now >= deadline or who.is_gone:
                return None
            await self._changes.within(deadline - now)

    async def done(self, key: Hashable, lease: str, result: Any) -> bool:
        """Takes a result; False if the lease does not count any more."""
        self._end_leases()
        return self._changed(self._table.done(key, lease, result))

    async def give_back(self, key: Hashable, lease: str, reason: str) -> bool:
        """Ends a lease; with a reason, the job counts as tried."""
        return self._changed(self._table.give_back(key, lease, reason))

    async def extend(self, key: Hashable, lease: str) -> bool:
        """Lets a lease hold for its whole time again; False if it has ended."""
        self._end_leases()
        return self._table.extend(key, lease, time.monotonic())

    async def close(self) -> None:
        """No more jobs are added."""
        self._table.is_closed = True
        self._changes.wake()

    async def counts(self) -> JobCounts:
        """How many jobs are in which state."""
        self._end_leases()
        return self._table.counts()

    async def finished(self, after: Cursor | None, wait_s: float) -> Finished | None:
        """A page of jobs that have come to their end since then; None if there are none within the time.

        A cursor of an earlier start of the queue begins anew: it may have gone back to what was saved.
        """
        begin = after[1] if after is not None and after[0] == self._start else 0
        deadline = time.monotonic() + wait_s
        while True:
            self._end_leases()
            found = _page(self._table.finished[begin : begin + _MOST_RESULTS])
            end, is_over = begin + len(found), self._table.is_over
            if found or is_over:
                return found, (self._start, end), is_over and end == len(self._table.finished)
            if (left_s := deadline - time.monotonic()) <= 0:
                return None
            await self._changes.within(left_s)

    async def save(self) -> Any:
        return self._table.copy(), self._last_added.copy()

    async def restore(self, saved: Any) -> None:
        before: JobTable
        before, self._last_added = saved
        before.max_attempts, before.lease_s = self._table.max_attempts, self._table.lease_s
        before.restart()
        self._table = before

    def _changed(self, is_so: bool) -> bool:
        if is_so:
            self._changes.wake()
        return is_so

    def _on_end(self, worker: str, attempt: int) -> None:
        """A worker has ended; called in a thread of launchpad's."""
        self._look_at = 0.0
        self._changes.wake_from_thread()

    def _end_leases(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = math.inf if self._table.lease_s is None else now + _LOOK_S
        if self._table.end_leases(has_ended, now):
            self._changes.wake()


def _page(finished: Sequence[FinishedJob]) -> list[FinishedJob]:
    """The first of them, as many as an answer may have."""
    page: list[FinishedJob] = []
    left = _MOST_BYTES
    for job in finished:
        body, buffers = pickling.encode((job.key, job.result, job.reasons))
        left -= len(body) + sum(each.nbytes for each in buffers)
        if left < 0 and page:
            break
        page.append(job)
    return page
