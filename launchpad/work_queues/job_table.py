"""The jobs of a work queue, as pure data: the state of each job, and the lease that counts.

    add ──▶ pending ──take──▶ leased ──done──▶ done
               ▲                │  ├──`max_attempts` leases ended without a result──▶ failed
               └────────────────┘
     given back; failed; its worker has ended; its time is up

Rules:
1. A job has at most one lease. The queue refuses every call from a lease that has ended, also `done`.
2. If a `done`, `fail` or `give_back` comes twice because a call is repeated, it takes effect once, and both
   calls get the same answer.
3. A restart of the queue ends all leases, because a `done` may have come after the state was saved. The jobs
   become pending, behind the others. If a `done` arrives later, the queue accepts it unless the job is done
   already. It may come from one of the ended leases, or from one that was given after the state was saved.
4. A job that is given back doesn't count as tried. Any other end of a lease without a result counts as an
   attempt, and the job keeps its reason.
5. The queue remembers the last hundred ended leases of each job.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from launchpad.runtime.callers import Caller

_KEPT_LEASES = 100

FAILED = "failed"
"""The value of `QueuedJob.done_by`, instead of a lease, for a job that has failed."""


@dataclass(frozen=True)
class FinishedJob:
    """A job of a work queue that is done or has failed.

    Example:
        for job in queue.results():
            print(job.key, job.reasons or job.result)

    Attributes:
        key: The key that the job was added with. If it was added without a key, this is a number.
        result: The result that the worker gave. None if the job failed.
        reasons: Why the job failed, one reason for each attempt. Empty if the job is done.
    """

    key: Hashable
    result: Any = None
    reasons: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """True if all attempts failed."""
        return bool(self.reasons)


@dataclass(frozen=True)
class JobCounts:
    """The number of jobs of a work queue in each state.

    Example:
        counts = queue.counts()
        print(f"{counts.done} done, {counts.failed} failed, {counts.pending + counts.leased} to do")

    Attributes:
        pending: Jobs that wait for a worker.
        leased: Jobs that a worker holds.
        done: Jobs that have a result.
        failed: Jobs of which all attempts failed.
        is_closed: True if no more jobs can be added.
    """

    pending: int
    leased: int
    done: int
    failed: int
    is_closed: bool

    @property
    def total(self) -> int:
        """The number of all jobs that were added."""
        return self.pending + self.leased + self.done + self.failed


@dataclass
class LeasedTo:
    """The holder of a job, and the time when the lease ends.

    Attributes:
        lease: The lease's id, which is unique across all restarts of the queue.
        request: The request that was answered with the lease. If it is repeated, it gets the same answer.
        holder: The worker that holds the job.
        expires_at: The end of the lease by the queue's clock. None means no limit.
    """

    lease: str
    request: str
    holder: Caller
    expires_at: float | None = None


@dataclass
class QueuedJob:
    """A job and its state.

    Attributes:
        ended_leases: For each ended lease, the reason with which its holder gave the job back. None if the
            lease ended in another way.
    """

    key: Hashable
    value: Any
    reasons: list[str] = field(default_factory=list)
    ended_leases: dict[str, str | None] = field(default_factory=dict)
    leased_to: LeasedTo | None = None
    done_by: str = ""


@dataclass
class JobTable:
    """The jobs of a work queue.

    Args:
        max_attempts: The largest number of attempts at a job.
        lease_s: How long a lease lasts, in seconds. With None, it lasts until its worker ends.
    """

    max_attempts: int
    lease_s: float | None = None
    jobs: dict[Hashable, QueuedJob] = field(default_factory=dict)
    pending: deque[Hashable] = field(default_factory=deque)
    leased: dict[str, Hashable] = field(default_factory=dict)
    """Maps each lease to the key of its job."""
    requests: dict[str, str] = field(default_factory=dict)
    """Maps each request to the lease that answers it, until the lease ends."""
    finished: list[FinishedJob] = field(default_factory=list)
    n_failed: int = 0
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        """True if all jobs are finished and no more can be added."""
        return self.is_closed and len(self.finished) == len(self.jobs)

    def add(self, key: Hashable, value: Any) -> bool:
        """Add a job. False if there is a job with this key already."""
        if key in self.jobs:
            return False
        self.jobs[key] = QueuedJob(key, value)
        self.pending.append(key)
        return True

    def can_take(self, request: str) -> bool:
        """Return True if `take` would give a job to this request."""
        return bool(self.pending) or request in self.requests

    def take(self, holder: Caller, request: str, lease: str, now: float) -> QueuedJob | None:
        """Lease the next job to this caller. If the request is repeated, return the same job as before."""
        before = self.requests.get(request)
        if before is not None:
            return self.jobs[self.leased[before]]
        if not self.pending:
            return None
        job = self.jobs[self.pending.popleft()]
        job.leased_to = LeasedTo(lease, request, holder, self._expiry(now))
        self.leased[lease] = job.key
        self.requests[request] = lease
        return job

    def done(self, key: Hashable, lease: str, result: Any) -> bool:
        """Take the result of a job. False if the lease doesn't count."""
        job = self.jobs.get(key)
        if job is None or job.done_by or lease in job.ended_leases:
            return job is not None and job.done_by == lease
        if job.leased_to is not None:
            self._end_lease(job, None)
        else:
            self.pending.remove(key)
        job.done_by = lease
        job.value = None
        self.finished.append(FinishedJob(key, result))
        return True

    def give_back(self, key: Hashable, lease: str, reason: str = "") -> bool:
        """End a lease without a result. With a reason, the job counts as tried.

        Return False if the lease had ended before, unless this repeats the call that ended it.
        """
        job = self.jobs.get(key)
        if job is None or job.leased_to is None or job.leased_to.lease != lease:
            return job is not None and job.ended_leases.get(lease) == reason
        self._end_lease(job, reason)
        self._try_again(job, reason)
        return True

    def extend(self, key: Hashable, lease: str, now: float) -> bool:
        """Extend a lease, so that it ends `lease_s` seconds from now. False if it has ended already."""
        job = self.jobs.get(key)
        if job is None or job.leased_to is None or job.leased_to.lease != lease:
            return False
        job.leased_to.expires_at = self._expiry(now)
        return True

    def end_leases(self, has_ended: Callable[[Caller], bool], now: float) -> bool:
        """End the leases whose worker has ended, or whose time is up. True if there were such leases."""
        has_any = False
        for job in [self.jobs[key] for key in self.leased.values()]:
            leased_to = job.leased_to
            assert leased_to is not None
            reason = f"{leased_to.holder.worker} (attempt {leased_to.holder.attempt})"
            if has_ended(leased_to.holder):
                reason += " has ended, and had not done it"
            elif leased_to.expires_at is not None and leased_to.expires_at <= now:
                reason += f" had not done it within {self.lease_s:g} s"
            else:
                continue
            self._end_lease(job, None)
            self._try_again(job, reason)
            has_any = True
        return has_any

    def restart(self) -> None:
        """End all leases after a restart of the queue, and make their jobs pending."""
        for key in self.leased.values():
            self.jobs[key].leased_to = None
            self.pending.append(key)
        self.leased.clear()
        self.requests.clear()

    def counts(self) -> JobCounts:
        n_done = len(self.finished) - self.n_failed
        return JobCounts(len(self.pending), len(self.leased), n_done, self.n_failed, self.is_closed)

    def copy(self) -> JobTable:
        """Return a copy of the current table. It shares the jobs' values and results."""
        table = copy.copy(self)
        table.jobs = {}
        for key, job in self.jobs.items():
            job_copy = copy.copy(job)
            job_copy.reasons = job.reasons.copy()
            job_copy.ended_leases = job.ended_leases.copy()
            job_copy.leased_to = copy.copy(job.leased_to)
            table.jobs[key] = job_copy
        table.pending = self.pending.copy()
        table.finished = self.finished.copy()
        table.leased = self.leased.copy()
        table.requests = self.requests.copy()
        return table

    def _expiry(self, now: float) -> float | None:
        return None if self.lease_s is None else now + self.lease_s

    def _end_lease(self, job: QueuedJob, given_back: str | None) -> None:
        leased_to = job.leased_to
        assert leased_to is not None
        job.leased_to = None
        job.ended_leases[leased_to.lease] = given_back
        if len(job.ended_leases) > _KEPT_LEASES:
            del job.ended_leases[next(iter(job.ended_leases))]
        del self.leased[leased_to.lease], self.requests[leased_to.request]

    def _try_again(self, job: QueuedJob, reason: str) -> None:
        """Make a job pending again after its lease ended without a result.

        If this was its last attempt, the job has failed instead.
        """
        if reason:
            job.reasons.append(reason)
        if reason and len(job.reasons) >= self.max_attempts:
            job.done_by = FAILED
            job.value = None
            self.finished.append(FinishedJob(job.key, None, tuple(job.reasons)))
            self.n_failed += 1
        else:
            self.pending.appendleft(job.key)
