"""WorkQueue, made from the handle of a WorkQueueNode; and Lease, a job that a worker holds."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from launchpad.courier import fork
from launchpad.courier.deadlines import check_timeout
from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.services.requests import ClientSession
from launchpad.services.waiting import Poll
from launchpad.work_queues.job_table import FinishedJob, JobCounts
from launchpad.work_queues.server import OVER

_PLAIN_KEYS = frozenset({str, int, bytes, bool})


class WorkQueue:
    """A set of jobs, each of which is done once, even if workers die. Safe from any thread.

    Example:
        def work(queue: lp.WorkQueue) -> None:
          for lease in queue:                        # until it is closed, and all jobs are done
            lease.done(render(lease.job))

        def give(queue: lp.WorkQueue) -> None:
          queue.add_many(frames)
          queue.close()
          for finished in queue.results():
            print(finished.key, finished.result)

    In a worker, a handle of `lp.WorkQueueNode` turns into a WorkQueue. In the launching script,
    `running.client("jobs")` returns one. A WorkQueue can be pickled.

    When the program stops, all methods raise `lp.Stopped`, in any thread. A forked process may keep using the
    queue, and then adds and takes jobs for itself.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._poll = Poll(client)
        # `_add` holds this lock during its call, and says why.
        self._adding = fork.free_in_child(Lock())
        self._adder = ClientSession()
        self._taker = _TakerSession()

    def add(self, job: Any, key: Hashable | None = None) -> Hashable:
        """Add a job, and return its key.

        Args:
            job: The value that a worker gets. Anything that can be pickled.
            key: The name of the job, by default a number. If the queue already has a job with this key, the
                job stays unchanged, and nothing is added.

        Raises:
            ValueError: the queue is closed, or a copy of the key is not equal to the key.
        """
        return self._add([(key, job)])[0]

    def add_many(self, jobs: Iterable[Any] | Mapping[Hashable, Any]) -> list[Hashable]:
        """Add several jobs in one call, and return their keys. A mapping gives both keys and jobs."""
        if isinstance(jobs, Mapping):
            return self._add(list(jobs.items()))
        return self._add([(None, job) for job in jobs])

    def close(self) -> None:
        """Close the queue to new jobs. Iteration ends once all jobs are done or failed."""
        self._poll.call("close")

    def take(self, timeout_s: float | None = None) -> Lease | None:
        """Wait for a job. Return None if the queue is closed and all its jobs are done or failed.

        Raises:
            TimeoutError: no job came within the timeout.
        """
        check_timeout(timeout_s)
        requests: list[str] = []
        try:
            with contextlib.suppress(IndexError):
                # `extend` pops and appends in one step. An interruption between two steps would lose a
                # request.
                requests.extend(starmap(self._taker.unanswered.pop, ((),)))
            if not requests:
                requests.append(f"{self._taker.key}-{next(self._taker.numbers)}")
            answer = self._poll.ask("take", requests[0], timeout_s=timeout_s)
            if answer == OVER:
                return None
            key, job, attempt, lease_id = answer
            return Lease(key, job, attempt, lease_id, self._poll)
        except BaseException as error:
            # The queue may have leased a job to this request. The next `take` repeats the request and gets
            # the job.
            self._taker.unanswered.extend(requests)
            if isinstance(error, TimeoutError) and not is_interruption(error):
                raise TimeoutError(f"no job within {timeout_s} s: {self.counts()}") from None
            raise

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over leases until the queue is closed and all jobs are done or failed."""
        while True:
            lease = self.take()
            if lease is None:
                return
            yield lease

    def counts(self) -> JobCounts:
        """Return the number of jobs in each state."""
        counts: JobCounts = self._poll.call("counts")
        return counts

    def results(
        self, timeout_s: float | None = None, *, n: int | None = None
    ) -> Iterator[FinishedJob]:
        """Yield each job once, as it finishes, until the queue is closed and all jobs have finished.

        The queue keeps finished jobs, so every call starts with the first one.

        Example:
            keys = queue.add_many(frames)                 # in the launching script
            pictures = {job.key: job.result for job in queue.results(n=len(keys))}
            queue.close()                                 # now workers return, and the program ends

        Args:
            timeout_s: How long to wait for the next job.
            n: Stop after this number of jobs, even if the queue is still open.

        Raises:
            TimeoutError: no job finished within the timeout.
        """
        visited: set[Hashable] = set()
        cursor = None
        is_over = False
        while not is_over and len(visited) != n:
            try:
                jobs, cursor, is_over = self._poll.ask("finished", cursor, timeout_s=timeout_s)
            except TimeoutError as error:
                if is_interruption(error):
                    raise
                text = f"no job was finished within {timeout_s} s: {self.counts()}"
                raise TimeoutError(text) from None
            for job in jobs:
                if job.key not in visited and len(visited) != n:
                    visited.add(job.key)
                    yield job

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkQueue, (self._client,)

    def __repr__(self) -> str:
        return f"WorkQueue({self._client!r})"

    def _add(self, jobs: list[tuple[Hashable | None, Any]]) -> list[Hashable]:
        for key, _ in jobs:
            _check_key(key)
        # Of each client's calls, the queue recognizes only a repetition of the last one. So the lock keeps a
        # second thread from adding before this call is answered.
        with self._adding:
            session = self._adder
            number = session.number
            # Count before the call, because the call may be interrupted here after the queue has answered it.
            # If the next call then had the same number, the queue would take it for a repetition.
            session.number = number + 1
            keys: list[Hashable] = self._poll.call("add", session.key, number, jobs)
        return keys


class _TakerSession(ClientSession):
    """The session for `take`. It can have several requests at a time.

    The queue knows each request by the session's key and a number.

    Attributes:
        numbers: The numbers of the next requests.
        unanswered: Requests of a `take` that ended before it got the answer.
    """

    numbers: Iterator[int]
    unanswered: deque[str]

    def renew(self) -> None:
        super().renew()
        self.numbers = itertools.count(1)
        self.unanswered = deque()


@dataclass(frozen=True)
class Lease:
    """A job that this worker holds until the job is done or the worker ends.

    Example:
        for lease in queue:
            try:
                lease.done(render(lease.job))
            except ValueError as error:
                lease.fail(error)                   # it is tried again

    Attributes:
        key: The key of the job.
        job: The value that was added.
        attempt: The number of this attempt at the job, from 1.
    """

    key: Hashable
    job: Any
    attempt: int
    _id: str = field(repr=False)
    _poll: Poll = field(repr=False)

    def done(self, result: Any = None) -> bool:
        """Give the result of the job.

        Return False if the queue refused the result, because the lease has ended and another worker gets the
        job.
        """
        return bool(self._poll.call("done", self.key, self._id, result))

    def fail(self, reason: object) -> bool:
        """Report that this attempt failed. Any worker may try the job again, up to `max_attempts` attempts.

        Return False if the lease has ended.
        """
        text = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else reason
        return bool(
            self._poll.call("give_back", self.key, self._id, str(text) or "no reason given")
        )

    def give_back(self) -> bool:
        """Give the job back for another worker, without counting this attempt.

        Return False if the lease has ended.
        """
        return bool(self._poll.call("give_back", self.key, self._id, ""))

    def extend(self) -> bool:
        """Extend the lease, so that it ends `lease_s` seconds from now. False if it has ended already."""
        return bool(self._poll.call("extend", self.key, self._id))


def _check_key(key: Hashable | None) -> None:
    """Raise TypeError if the key is not hashable, and ValueError if a copy of the key is not equal to it.

    Each call pickles the key, so the queue gets copies. If a copy were not equal, no later call could find
    the job.
    """
    if key is None or type(key) in _PLAIN_KEYS:
        return
    try:
        copy = pickle.loads(pickle.dumps(key))
    except Exception:
        # The call to the queue, which follows, raises a better error, or sends the key's class along.
        return
    try:
        is_found = copy in {key}
    except TypeError as error:
        raise TypeError(f"the key of a job is hashable, and {key!r} is not: {error}") from None
    # Check equality, too: a set that contains a NaN finds it, but the NaN is not equal to itself.
    if not is_found or copy != key:
        raise ValueError(
            f"{key!r} cannot be the key of a job: a copy of it is not equal to it, and what is sent to the"
            " queue is a copy. Use a str or a number, or a class with __eq__ and __hash__"
        )
