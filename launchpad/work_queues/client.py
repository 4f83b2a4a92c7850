"""WorkQueue: what a WorkQueueNode's handle turns into; and Lease, a job that a worker has."""

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
    """A set of jobs, each of which is done once, by workers that may die meanwhile. Safe from any thread.

    Example:
        def work(queue: lp.WorkQueue) -> None:
          for lease in queue:                        # until it is closed, and all jobs are done
            lease.done(render(lease.job))

        def give(queue: lp.WorkQueue) -> None:
          queue.add_many(frames)
          queue.close()
          for finished in queue.results():
            print(finished.key, finished.result)

    A handle of `lp.WorkQueueNode` turns into one. In the launching script:
    `running.client("jobs")`. It pickles.

    All its methods raise `lp.Stopped` when the program stops, in threads as well. A forked process may go on
    with it: it adds and takes for itself.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._poll = Poll(client)
        self._adding = fork.free_in_child(Lock())
        self._adder = ClientSession()
        self._taker = _TakerSession()

    def add(self, job: Any, key: Hashable | None = None) -> Hashable:
        """Adds a job, which may be anything that can be pickled; returns its key.

        Args:
            job: What a worker gets.
            key: Its name. If there is a job of that name it stays as it is, and nothing is added. By
                default a number.

        Raises:
            ValueError: the queue is closed; or a copy of the key is not equal to it.
        """
        return self._add([(key, job)])[0]

    def add_many(self, jobs: Iterable[Any] | Mapping[Hashable, Any]) -> list[Hashable]:
        """Adds jobs by one call, of a mapping with its keys; returns their keys."""
        if isinstance(jobs, Mapping):
            return self._add(list(jobs.items()))
        return self._add([(None, job) for job in jobs])

    def close(self) -> None:
        """No more jobs are added: iteration ends when all are done or failed."""
        self._poll.call("close")

    def take(self, timeout_s: float | None = None) -> Lease | None:
        """Waits for a job; None: the queue is closed, and all its jobs are done or failed.

        Raises:
            TimeoutError: the time was up before.
        """
        check_timeout(timeout_s)
        requests: list[str] = []
        try:
            with contextlib.suppress(IndexError):
                # In one step, so that none is lost where this thread is interrupted.
                requests.extend(starmap(self._taker.unanswered.pop, ((),)))
            if not requests:
                requests.append(f"{self._taker.key}-{next(self._taker.numbers)}")
            answer = self._poll.ask("take", requests[0], timeout_s=timeout_s)
            if answer == OVER:
                return None
            key, job, attempt, lease_id = answer
            return Lease(key, job, attempt, lease_id, self._poll)
        except BaseException as error:
            # The next take gets the job that this one may have got.
            self._taker.unanswered.extend(requests)
            if isinstance(error, TimeoutError) and not is_interruption(error):
                raise TimeoutError(f"no job within {timeout_s} s: {self.counts()}") from None
            raise

    def __iter__(self) -> Iterator[Lease]:
        """Leases, until the queue is closed and all jobs are done or failed."""
        while (lease := self.take()) is not None:
            yield lease

    def counts(self) -> JobCounts:
        """How many jobs are in which state."""
        counts: JobCounts = self._poll.call("counts")
        return counts

    def results(
        self, timeout_s: float | None = None, *, n: int | None = None
    ) -> Iterator[FinishedJob]:
        """Jobs as they come to their end, each once; until the queue is closed and all have.

        Every call begins with the first: the queue keeps them.

        Example:
            keys = queue.add_many(frames)                 # in the launching script
            pictures = {job.key: job.result for job in queue.results(n=len(keys))}
            queue.close()                                 # now workers return, and the program ends

        Args:
            timeout_s: How long to wait for the next one.
            n: End after so many, whether the queue is closed or not.

        Raises:
            TimeoutError: that was too long.
        """
        seen: set[Hashable] = set()
        cursor, is_over = None, False
        while not is_over and len(seen) != n:
            try:
                found, cursor, is_over = self._poll.ask("finished", cursor, timeout_s=timeout_s)
            except TimeoutError as error:
                if is_interruption(error):
                    raise
                text = f"no job was finished within {timeout_s} s: {self.counts()}"
                raise TimeoutError(text) from None
            for job in found:
                if job.key not in seen and len(seen) != n:
                    seen.add(job.key)
                    yield job

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkQueue, (self._client,)

    def __repr__(self) -> str:
        return f"WorkQueue({self._client!r})"

    def _add(self, jobs: list[tuple[Hashable | None, Any]]) -> list[Hashable]:
        for key, _ in jobs:
            _check_key(key)
        with self._adding:  # the queue knows the last call of each client again, if it is repeated
            session = self._adder
            number = session.number
            # Before the call: one that is interrupted may have been answered, and is not asked again.
            session.number = number + 1
            keys: list[Hashable] = self._poll.call("add", session.key, number, jobs)
        return keys


class _TakerSession(ClientSession):
    """Requests for jobs, several at a time: each is known by the session's key and a number.

    Attributes:
        unanswered: Requests of a `take` that has ended without its answer.
    """

    numbers: Iterator[int]
    unanswered: deque[str]

    def renew(self) -> None:
        super().renew()
        self.numbers = itertools.count(1)
        self.unanswered = deque()


@dataclass(frozen=True)
class Lease:
    """A job that this worker has until it is done, or the worker ends.

    Example:
        for lease in queue:
            try:
                lease.done(render(lease.job))
            except ValueError as error:
                lease.fail(error)                   # it is tried again

    Attributes:
        key: Of the job.
        job: What was added.
        attempt: 1 if it is tried for the first time.
    """

    key: Hashable
    job: Any
    attempt: int
    _id: str = field(repr=False)
    _poll: Poll = field(repr=False)

    def done(self, result: Any = None) -> bool:
        """Gives the result. False: it was refused, as the lease has ended, and another worker has the job."""
        return bool(self._poll.call("done", self.key, self._id, result))

    def fail(self, reason: object) -> bool:
        """It could not be done: it is tried again, by any worker, until `max_attempts`."""
        text = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else reason
        return bool(
            self._poll.call("give_back", self.key, self._id, str(text) or "no reason given")
        )

    def give_back(self) -> bool:
        """Another worker shall do it; that does not count as an attempt."""
        return bool(self._poll.call("give_back", self.key, self._id, ""))

    def extend(self) -> bool:
        """Lets it hold for the queue's `lease_s` from now on; False: it has ended."""
        return bool(self._poll.call("extend", self.key, self._id))


def _check_key(key: Hashable | None) -> None:
    """Refuse a key that no call names again: each pickles it, and a copy has to equal it."""
    if key is None or type(key) in _PLAIN_KEYS:
        return
    try:
        copy = pickle.loads(pickle.dumps(key))
    except Exception:  # the call says what is wrong, or sends its class along
        return
    try:
        is_found = copy in {key}
    except TypeError as error:
        raise TypeError(f"the key of a job is hashable, and {key!r} is not: {error}") from None
    # A NaN is in a set of itself, and not equal to itself.
    if not is_found or copy != key:
        raise ValueError(
            f"{key!r} cannot be the key of a job: a copy of it is not equal to it, and what is sent to the"
            " queue is a copy. Use a str or a number, or a class with __eq__ and __hash__"
        )
