"""The jobs of a work queue, as pure data: what state each is in, and which lease counts.

    add ──▶ pending ──take──▶ leased ──done──▶ done
               ▲                │  ├──fail, or its worker has ended, `max_attempts` times──▶ failed
               └────────────────┘
     given back; its worker has ended; its time is up

Rules:
1. A job has one lease at most. What comes from a lease that has ended, `done` included, is refused.
2. The same `done`, `fail` or `give_back` that comes twice, as a call is repeated, is taken once and answered
   alike.
3. After a restart of the queue no lease holds, as its `done` may have come after the state was saved: all
   such jobs are pending, behind the others. A `done` that still comes, of those leases or of ones that were
   given after that, is taken if the job has none yet.
4. A job that is given back has not been tried. Any other end of a lease counts, and its reason is kept.
5. Of each job the last leases that have ended are known, a hundred of them.
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
"""In place of the lease by which a job was done."""


@dataclass(frozen=True)
class FinishedJob:
    """A job of a work queue that has come to its end.

    Example:
        for job in queue.results():
            print(job.key, job.reasons or job.result)

    Attributes:
        key: As it was added; a number if that was without one.
        result: What its worker gave; None if it failed.
        reasons: Why it failed, one for each attempt; empty if it is done.
    """

    key: Hashable
    result: Any = None
    reasons: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether it was tried as often as it may be, in vain."""
        return bool(self.reasons)


@dataclass(frozen=True)
class JobCounts:
    """How many jobs of a work queue are in which state.

    Example:
        counts = queue.counts()
        print(f"{counts.done} done, {counts.failed} failed, {counts.pending + counts.leased} to do")

    Attributes:
        pending: They wait for a worker.
        leased: A worker has them.
        done: They have a result.
        failed: They were tried as often as they may be.
        is_closed: No more are added.
    """

    pending: int
    leased: int
    done: int
    failed: int
    is_closed: bool

    @property
    def total(self) -> int:
        """All jobs that were added."""
        return self.pending + self.leased + self.done + self.failed


@dataclass
class LeasedTo:
    """Who has a job, and until when.

    Attributes:
        lease: Unique in all starts of the queue.
        request: The call that it answers: if that is repeated, the answer is the same.
        expires_at: By the clock of the queue; None: no limit.
    """

    lease: str
    request: str
    holder: Caller
    expires_at: float | None = None


@dataclass
class QueuedJob:
    """A job and what has become of it.

    Attributes:
        ended_leases: Lease → the reason with which its holder gave the job back; None: it has ended else.
    """

    key: Hashable
    value: Any
    reasons: list[str] = field(default_factory=list)
    ended_leases: dict[str, str | None] = field(default_factory=dict)
    leased_to: LeasedTo | None = None
    done_by: str = ""


@dataclass
class JobTable:
    """All jobs of a work queue.

    Args:
        max_attempts: How often a job is tried.
        lease_s: How long a lease holds; None: until its worker ends.
    """

    max_attempts: int
    lease_s: float | None = None
    jobs: dict[Hashable, QueuedJob] = field(default_factory=dict)
    pending: deque[Hashable] = field(default_factory=deque)
    leased: dict[str, Hashable] = field(default_factory=dict)
    """Lease → job."""
    requests: dict[str, str] = field(default_factory=dict)
    """Request → lease, as long as it holds."""
    finished: list[FinishedJob] = field(default_factory=list)
    n_failed: int = 0
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        """No job is left, and none will be added."""
        return self.is_closed and len(self.finished) == len(self.jobs)

    def add(self, key: Hashable, value: Any) -> bool:
        """False if there is a job with this key already."""
        if key in self.jobs:
            return False
        self.jobs[key] = QueuedJob(key, value)
        self.pending.append(key)
        return True

    def can_take(self, request: str) -> bool:
        """True if `take` would give a job to this request."""
        return bool(self.pending) or request in self.requests

    def take(self, holder: Caller, request: str, lease: str, now: float) -> QueuedJob | None:
        """The next job, leased to this caller; the same one as before if the request is repeated."""
        if (before := self.requests.get(request)) is not None:
            return self.jobs[self.leased[before]]
        if not self.pending:
            return None
        job = self.jobs[self.pending.popleft()]
        job.leased_to = LeasedTo(lease, request, holder, self._expiry(now))
        self.leased[lease], self.requests[request] = job.key, lease
        return job

    def done(self, key: Hashable, lease: str, result: Any) -> bool:
        """Takes the result of a job; False if this lease does not count."""
        job = self.jobs.get(key)
        if job is None or job.done_by or lease in job.ended_leases:
            return job is not None and job.done_by == lease
        if job.leased_to is not None:
            self._end_lease(job, None)
        else:
            self.pending.remove(key)
        job.done_by, job.value = lease, None
        self.finished.append(FinishedJob(key, result))
        return True

    def give_back(self, key: Hashable, lease: str, reason: str = "") -> bool:
        """Ends a lease without a result; with a reason the job counts as tried. False: it does not hold."""
        job = self.jobs.get(key)
        if job is None or job.leased_to is None or job.leased_to.lease != lease:
            return job is not None and job.ended_leases.get(lease) == reason
        self._end_lease(job, reason)
        self._try_again(job, reason)
        return True

    def extend(self, key: Hashable, lease: str, now: float) -> bool:
        """The lease holds for its whole time again; False if it has ended."""
        job = self.jobs.get(key)
        if job is None or job.leased_to is None or job.leased_to.lease != lease:
            return False
        job.leased_to.expires_at = self._expiry(now)
        return True

    def end_leases(self, has_ended: Callable[[Caller], bool], now: float) -> bool:
        """Ends those whose worker has ended, and those whose time is up; whether there were any."""
        found = False
        for job in [self.jobs[key] for key in self.leased.values()]:
            to = job.leased_to
            assert to is not None
            reason = f"{to.holder.worker} (attempt {to.holder.attempt})"
            if has_ended(to.holder):
                reason += " has ended, and had not done it"
            elif to.expires_at is not None and to.expires_at <= now:
                reason += f" had not done it within {self.lease_s:g} s"
            else:
                continue
            self._end_lease(job, None)
            self._try_again(job, reason)
            found = True
        return found

    def restart(self) -> None:
        """Goes on from what was saved."""
        for key in self.leased.values():
            self.jobs[key].leased_to = None
            self.pending.append(key)
        self.leased.clear()
        self.requests.clear()

    def counts(self) -> JobCounts:
        n_done = len(self.finished) - self.n_failed
        return JobCounts(len(self.pending), len(self.leased), n_done, self.n_failed, self.is_closed)

    def copy(self) -> JobTable:
        """As it is now; jobs and results themselves are shared."""
        other = copy.copy(self)
        other.jobs = {}
        for key, job in self.jobs.items():
            of = other.jobs[key] = copy.copy(job)
            of.reasons, of.ended_leases = job.reasons.copy(), job.ended_leases.copy()
            of.leased_to = copy.copy(job.leased_to)
        other.pending, other.finished = self.pending.copy(), self.finished.copy()
        other.leased, other.requests = self.leased.copy(), self.requests.copy()
        return other

    def _expiry(self, now: float) -> float | None:
        return None if self.lease_s is None else now + self.lease_s

    def _end_lease(self, job: QueuedJob, given_back: str | None) -> None:
        to = job.leased_to
        assert to is not None
        job.leased_to = None
        job.ended_leases[to.lease] = given_back
        if len(job.ended_leases) > _KEPT_LEASES:
            del job.ended_leases[next(iter(job.ended_leases))]
        del self.leased[to.lease], self.requests[to.request]

    def _try_again(self, job: QueuedJob, reason: str) -> None:
        """Its lease has ended without a result."""
        if reason:
            job.reasons.append(reason)
        if reason and len(job.reasons) >= self.max_attempts:
            job.done_by, job.value = FAILED, None
            self.finished.append(FinishedJob(job.key, None, tuple(job.reasons)))
            self.n_failed += 1
        else:
            self.pending.appendleft(job.key)
