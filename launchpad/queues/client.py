"""A queue as its producers and consumers have it: `lp.Queue`.

    producer    value ──pack──▶ items ──put──▶ the queue's worker
    consumer    a chunk of items ◀──get── the queue's worker; of these each value is unpacked when it is due

A consumer that iterates has as many items in its hands as it handles within some milliseconds: one, if one
takes longer than that. When it asks for the next chunk, those before count as handled.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from launchpad.courier import fork
from launchpad.courier.client.client import Client
from launchpad.courier.client.typed import with_options
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.errors import CourierError, DeadlineExceeded
from launchpad.courier.interruptions import Lock
from launchpad.errors import QueueClosed, QueueEmpty, QueueFull, QueueLost, Stopped
from launchpad.queues.buffered_put import BufferedPut
from launchpad.queues.contents import (
    CANCELLED,
    CLOSED,
    EMPTY,
    ENDED,
    FULL,
    QueueReport,
    QueueStats,
)
from launchpad.queues.packing import Item, pack
from launchpad.queues.server import AGAIN, GONE, LOST
from launchpad.queues.sessions import MOST, ConsumerSession, QueueClientSession
from launchpad.runtime import context

T = TypeVar("T")

_SLICE_S = 0.4  # a wait is made of such, between which it looks whether the program stops
_MARGIN_S = 1.0  # an answer may be that late
_PAUSE_S = 0.05

_MAX_BYTES = 1 << 20  # of one call


class Queue(Generic[T]):
    """A queue between workers: what the handle of an `lp.QueueNode` turns into.

    Example:
        def produce(queue: lp.Queue[Row]) -> None:
          with queue.producer():                  # closes it for this worker at the end
            for path in paths:
              queue.put_many(read_rows(path))

        def consume(queue: lp.Queue[Row]) -> None:
          for row in queue:                       # until all producers have closed
            handle(row)

    An item that was put is handled exactly once, or reported: if a consumer dies, what it had taken goes
    back to the front and is delivered again, and what it may have handled is in the log and in `reports()`.
    An item counts as handled when its thread asks for the next, calls `acknowledge()`, or when its worker
    has succeeded.

    From any thread; each takes for itself. It can be pickled and given to other processes of the worker.
    Waits end when the program stops, by `lp.Stopped`. Besides what is listed, methods raise `CourierError`
    when the queue's worker has failed, and QueueLost when that was started again without what it held.
    """

    def __init__(self, client: Client[Any]) -> None:
        self._client = client
        self._calls: Any = with_options(client, idempotent=True)
        self._lock = fork.free_in_child(Lock())
        self._local = threading.local()
        self._idle: deque[QueueClientSession] = (
            deque()
        )  # of puts; each renews itself in a forked child
        self._queue_id = ""
        self._most = MOST
        self._n_producing = 0
        fork.call_in_child(self, type(self)._drop_inherited)

    # --- producers -------------------------------------------------------------------------------

    def put(self, item: T, timeout_s: float | None = None) -> bool:
        """Puts an item at the end, and returns when the queue has it; waits while that is full.

        Args:
            item: Anything that can be pickled; arrays are not copied into the pickle.
            timeout_s: How long to wait at most.

        Returns:
            False when a consumer has cancelled the queue: it takes nothing more.

        Raises:
            QueueFull: the time was up; also a `queue.Full` and a `TimeoutError`.
            DeadlineExceeded: the queue's worker did not answer within the time; it may have the item.
            QueueClosed: this worker has closed.
        """
        return self._put([pack(item)], deadline_after(timeout_s), timeout_s)

    def put_many(self, items: Iterable[T], timeout_s: float | None = None) -> bool:
        """Puts several, in their order: about 1,000 go in one call. As `put` otherwise.

        Of a generator, arrays are copied, so that it may fill one again.

        Raises:
            QueueFull: the time was up; `error.accepted` of them were taken.
        """
        deadline = deadline_after(timeout_s)
        accepted = size = 0
        packed: list[Item] = []
        pending = iter(items)
        # What a generator gives is sent when it has given more, and has perhaps filled its array again.
        copies = not isinstance(items, list | tuple)
        while True:
            for item in pending:
                packed.append(pack(item, copy=copies))
                size += len(packed[-1])
                if len(packed) >= MOST or size >= _MAX_BYTES:
                    break
            if not packed:
                return True
            try:
                if not self._put(packed, deadline, timeout_s):
                    return False
            except QueueFull as full:
                full.accepted += accepted
                raise
            accepted += len(packed)
            packed, size = [], 0

    def put_from(self, items: Iterable[T]) -> int:
        """Puts what an iterator gives, for as long as it gives anything; many items go in one call.

        An item is sent as soon as it is there; those that come meanwhile go together. Returns when the queue
        has all of them; at most 4,000 are on the way. Arrays are copied, so that one may be filled again.

        Example:
            with queue.producer():
              queue.put_from(environment.steps())

        Returns:
            How many the queue has taken: all, unless it was cancelled.

        Raises:
            Exception: what the iterator raises; what it gave before is in the queue.
        """
        with BufferedPut(
            lambda packed: self._put(packed, None, None), context.is_stopping
        ) as buffered:
            for item in items:
                if not buffered.add(pack(item, copy=True)):
                    break
        return buffered.accepted

    @contextlib.contextmanager
    def producer(self) -> Iterator[Queue[T]]:
        """A block in which this worker is a producer, also if it puts nothing; at its end it has closed.

        Not if it is left by an exception: the worker may be started again, and go on. Of several blocks in
        one worker the last closes.

        Raises:
            QueueClosed: this worker has closed.
        """
        if not self._ask("register"):
            raise self._closed()
        with self._lock:
            self._n_producing += 1
        is_well = False
        try:
            yield self
            is_well = True
        finally:
            with self._lock:
                self._n_producing -= 1
                is_last = not self._n_producing
            if is_well and is_last:
                self.close()

    def close(self) -> None:
        """This worker puts nothing more. When all producers have closed, iteration ends with the last item.

        A worker that has put something closes by itself when it has succeeded and is not started again.
        """
        self._ask("close_producer")

    # --- consumers -------------------------------------------------------------------------------

    def get(self, timeout_s: float | None = None) -> T:
        """Takes the item at the front; waits while there is none.

        It is in this thread's hands until it asks for the next one or calls `acknowledge()`.

        Raises:
            QueueEmpty: the time was up; also a `queue.Empty` and a `TimeoutError`.
            QueueClosed: there is none, and all producers have closed, or the queue was cancelled.
        """
        return self.get_many(1, timeout_s)[0]

    def get_many(self, n: int, timeout_s: float | None = None, *, at_least: int = 1) -> list[T]:
        """Takes what is there, `at_least` to n items; waits while there are fewer. As `get` otherwise.

        Example:
            batch = queue.get_many(32, at_least=32)  # whole batches, and a smaller one at the end

        Args:
            at_least: Fewer come only when all producers have closed, or the queue was cancelled. When the
                time is up, none come; the next call gives them.

        Raises:
            QueueEmpty: the time was up.
            QueueClosed: nothing comes out of it any more.
            ValueError: `at_least` is not from 1 to `n`.
        """
        if not 1 <= at_least <= n:
            raise ValueError(
                f"get_many takes at least one item, and n at most, got n={n!r}, at_least={at_least!r}"
            )
        deadline = deadline_after(timeout_s)
        try:
            session = self._session(timeout_s)
            is_there = bool(session.chunk) or self._fetch(session, n, deadline, timeout_s)
            if is_there and at_least > 1:
                self._fill(session, n, at_least, deadline, timeout_s)
        except DeadlineExceeded as late:
            if timeout_s is None:  # the deadline of the call that this thread answers
                raise
            raise QueueEmpty(f"{self} did not answer within {timeout_s:g} s") from late
        if not is_there:
            raise QueueClosed(
                f"{self} gives nothing any more: it was cancelled, or it is empty and all producers have"
                " closed"
            )
        return session.next_many(n)

    def __iter__(self) -> Iterator[T]:
        """Takes items until all producers have closed and none is left, or the queue is cancelled.

        Some are fetched ahead, as many as take some milliseconds. What was not begun when the loop is left
        goes back to the front; the one that was is in this thread's hands as after `get`.
        """
        session = self._session()
        try:
            while True:
                session.resize()
                if context.is_stopping():
                    self._acknowledge(session)
                    raise Stopped
                if not self._fetch(session, min(session.size, self._most), None, None):
                    return
                while session.chunk:
                    yield session.next()
                    if session.chunk and session.is_long:
                        break
        finally:
            if session.chunk:
                with contextlib.suppress(CourierError, Stopped):
                    self._finish(session)
                    in_work = min(session.given, 1)
                    session.chunk.clear()
                    self._settle(session, session.given - in_work, in_work)

    def acknowledge(self) -> None:
        """What this thread has taken is handled: it does not go back if the worker dies."""
        self._acknowledge(self._session())

    def cancel(self) -> None:
        """Enough: producers' `put` returns False at once, iterations end, what waits is dropped."""
        self._ask("cancel")

    # --- what can be asked -----------------------------------------------------------------------

    def size(self) -> int:
        """How many items wait, by now."""
        return int(self._ask("size"))

    def stats(self) -> QueueStats:
        """What the queue has counted so far."""
        found: QueueStats = self._ask("queue_stats")
        return found

    def reports(self) -> list[QueueReport]:
        """The consumers that ended with items in hand, and these items; the last 1,000 of them."""
        found: list[QueueReport] = self._ask("reports")
        return found

    # --- requests --------------------------------------------------------------------------------

    def _put(self, items: list[Item], deadline: float | None, timeout_s: float | None) -> bool:
        """Puts them until the deadline, which is `timeout_s` after the beginning."""
        session: QueueClientSession | None = None
        with contextlib.suppress(IndexError):
            session = self._idle.pop()
        if session is None:
            session = QueueClientSession(self._hello(timeout_s))
        left = items
        while True:  # a session whose request was interrupted is not used again
            state, accepted = self._request(session, "put", deadline, left)
            left = left[accepted:] if accepted else left
            if not left or state in (CANCELLED, CLOSED):
                break
            if deadline is not None and time.monotonic() >= deadline:
                self._idle.append(session)
                raise QueueFull(
                    f"{self} had no room within {timeout_s:g} s. Wait longer, give the QueueNode a"
                    " larger maxsize, or have more consumers.",
                    len(items) - len(left),
                )
        self._idle.append(session)
        if state == CLOSED:
            raise self._closed()
        return not left

    def _fetch(
        self, session: ConsumerSession, n: int, deadline: float | None, timeout_s: float | None
    ) -> bool:
        """Acknowledges what the thread has got, gives back the rest, and takes up to n; False at the end."""
        self._finish(session, deadline)
        while True:
            session.chunk.clear()
            state, items = self._request(session, "get", deadline, n, session.given, 0)
            session.given = 0
            session.chunk.extend(items)
            session.since = time.monotonic()
            if items or state == ENDED:
                return bool(items)
            if state == EMPTY and deadline is not None and session.since >= deadline:
                raise QueueEmpty(f"{self} had no item within {timeout_s:g} s")

    def _fill(
        self,
        session: ConsumerSession,
        n: int,
        at_least: int,
        deadline: float | None,
        timeout_s: float | None,
    ) -> None:
        """Takes more, up to n, and keeps all that is in hand; fewer than `at_least` at the end."""
        self._finish(session, deadline)
        while len(session.chunk) < at_least:
            kept = session.unsettled = 0, session.given + len(session.chunk)
            more = n - len(session.chunk)
            state, items = self._request(session, "get", deadline, more, *kept)
            session.unsettled = None
            session.chunk.extend(items)
            if state == ENDED:
                return
            if state == EMPTY and deadline is not None and time.monotonic() >= deadline:
                raise QueueEmpty(
                    f"{self} had {len(session.chunk)} items within {timeout_s:g} s, not {at_least}"
                )

    def _acknowledge(self, session: ConsumerSession) -> None:
        self._finish(session)
        if session.given:
            self._settle(session, session.given, len(session.chunk))

    def _settle(self, session: ConsumerSession, handled: int, kept: int) -> None:
        """Acknowledges, and takes nothing; after `_finish`."""
        session.unsettled = handled, kept
        self._finish(session)

    def _finish(self, session: ConsumerSession, deadline: float | None = None) -> None:
        """Repeats a `_settle` that was interrupted as it was: the queue may have done it already.

        The answer has what an earlier request has taken, if that was missed.
        """
        if session.unsettled is not None:
            handled, kept = session.unsettled
            _, missed = self._request(session, "get", deadline, 0, handled, kept)
            session.unsettled = None
            session.given -= handled
            session.chunk.extend(missed)

    def _request(
        self, session: QueueClientSession, method: str, deadline: float | None, *args: Any
    ) -> tuple[str, Any]:
        """One request with a number, repeated until it is answered."""
        while True:
            # Asked before the call: an item that has come during it is still taken.
            is_stopping = context.is_stopping()
            wait_s = 0.0 if is_stopping else _SLICE_S
            calls = self._calls
            if deadline is not None:
                left_s = max(0.0, deadline - time.monotonic())
                wait_s = min(wait_s, left_s)
                calls = with_options(calls, timeout_s=left_s + _MARGIN_S)
            call = getattr(calls, method)
            key, number, queue_id = session.key, session.number, session.queue_id
            try:
                state, value = call(key, number, queue_id, *args, wait_s)
            except CourierError as error:
                if context.is_stopping() and not isinstance(error, DeadlineExceeded):
                    raise Stopped from error
                raise
            if state == AGAIN:
                time.sleep(_PAUSE_S)
                continue
            if state == LOST:
                raise self._lost(session, value)
            session.number = number + 1
            if state == GONE or (is_stopping and state in (EMPTY, FULL)):
                raise Stopped
            return state, value

    def _ask(self, method: str, timeout_s: float | None = None) -> Any:
        calls = self._calls if timeout_s is None else with_options(self._calls, timeout_s=timeout_s)
        try:
            return getattr(calls, method)()
        except CourierError as error:
            if context.is_stopping():
                raise Stopped from error
            raise

    def _hello(self, timeout_s: float | None = None) -> str:
        if not self._queue_id:
            margin_s = None if timeout_s is None else timeout_s + _MARGIN_S
            queue_id, redelivers = self._ask("hello", margin_s)
            if not redelivers:  # what is fetched ahead would be lost with its consumer
                self._most = 1
            self._queue_id = queue_id
        return self._queue_id

    def _session(self, timeout_s: float | None = None) -> ConsumerSession:
        """That of the calling thread."""
        session: ConsumerSession | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = ConsumerSession(self._hello(timeout_s))
        return session

    def _lost(self, session: QueueClientSession, queue_id: str) -> QueueLost:
        self._queue_id = queue_id
        self._idle.clear()
        if self._local.__dict__.get("session") is session:
            del self._local.session
        return QueueLost(
            f"{self} was started again: what waited in it, what its consumers had not acknowledged, and which"
            " producers had closed is lost. Restart all together, RestartPolicy(scope='program'), or leave"
            " the queue's group without a restart policy: then the program fails with it."
        )

    def _closed(self) -> QueueClosed:
        return QueueClosed(
            f"{context.current().name if context.try_current() else 'this process'} has closed {self} and"
            " puts nothing more"
        )

    def _drop_inherited(self) -> None:
        """For a forked child: the blocks of `producer()` that this thread is in are the parent's.

        Leaving them here closes nothing.
        """
        self._n_producing = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Queue, (self._client,)

    def __repr__(self) -> str:
        return f"<Queue {self._client._name or self._client.address}>"
