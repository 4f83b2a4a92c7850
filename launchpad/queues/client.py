"""The client of a queue, for producers and consumers: `lp.Queue`.

    producer    value ──pack──▶ items ──put──▶ the queue's worker
    consumer    a chunk of items ◀──get── the queue's worker; each value is unpacked when its turn comes

An iterating consumer fetches items in chunks. A chunk has as many items as the consumer can handle within
some milliseconds, or a single item if that takes longer. When the consumer asks for the next chunk, the items
of the previous chunk count as handled.
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

# A long wait is a series of calls of this length, so that the client notices when the program stops.
_SLICE_S = 0.4
# Seconds that the client waits for an answer after the caller's timeout has passed.
_MARGIN_S = 1.0
_PAUSE_S = 0.05

# The largest total size, in bytes, of the items that `put_many` sends in one call.
_MAX_BYTES = 1 << 20


class Queue(Generic[T]):
    """A queue between workers, made from the handle of an `lp.QueueNode`.

    Example:
        def produce(queue: lp.Queue[Row]) -> None:
          with queue.producer():                  # closes it for this worker at the end
            for path in paths:
              queue.put_many(read_rows(path))

        def consume(queue: lp.Queue[Row]) -> None:
          for row in queue:                       # until all producers have closed
            handle(row)

    Each item is handled exactly once, or it is reported. If a consumer dies, the items that it had taken go
    back to the front of the queue and are delivered again. The log and `reports()` list those items that the
    consumer may have handled already. An item counts as handled when the thread that took it asks for the
    next one or calls `acknowledge()`, or when its worker succeeds.

    Safe from any thread; each thread takes items for itself. A queue can be pickled and given to other
    processes of the worker. When the program stops, all waits end with `lp.Stopped`. In addition to the
    listed errors, methods raise `CourierError` when the queue's worker has failed, and QueueLost when that
    worker was restarted and has lost the queue's items.
    """

    def __init__(self, client: Client[Any]) -> None:
        self._client = client
        self._calls: Any = with_options(client, idempotent=True)
        # If several `producer()` blocks end at once in different threads, exactly one of them must find that
        # it is the last.
        self._lock = fork.free_in_child(Lock())
        self._local = threading.local()
        # Sessions that no `put` is using at the moment. In a forked child, each of them renews itself.
        self._idle: deque[QueueClientSession] = deque()
        self._queue_id = ""
        self._most = MOST
        self._n_producing = 0
        fork.call_in_child(self, type(self)._drop_inherited)

    # --- producers -------------------------------------------------------------------------------

    def put(self, item: T, timeout_s: float | None = None) -> bool:
        """Put an item at the end, and return once the queue has it. Wait while the queue is full.

        Args:
            item: Anything that can be pickled; arrays are not copied into the pickle.
            timeout_s: The longest time to wait.

        Returns:
            False if a consumer has cancelled the queue, which then accepts no more items.

        Raises:
            QueueFull: the queue had no room within the timeout; also a `queue.Full` and a `TimeoutError`.
            DeadlineExceeded: the queue's worker did not answer within the timeout. The queue may have taken
                the item.
            QueueClosed: this worker has closed the queue.
        """
        return self._put([pack(item)], deadline_after(timeout_s), timeout_s)

    def put_many(self, items: Iterable[T], timeout_s: float | None = None) -> bool:
        """Put several items in order, about 1,000 in each call. Otherwise the same as `put`.

        Arrays that come from a generator are copied, so that the generator may reuse its array.

        Raises:
            QueueFull: the queue had no room within the timeout; it accepted the first `error.accepted` items.
        """
        deadline = deadline_after(timeout_s)
        accepted = 0
        size = 0
        packed: list[Item] = []
        pending = iter(items)
        # A generator yields more items before the first ones are sent. By then it may have overwritten an
        # array that it yielded earlier.
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
            packed = []
            size = 0

    def put_from(self, items: Iterable[T]) -> int:
        """Put every item of an iterator, many in each call, and return once the queue has them all.

        The first item is sent at once. Items that the iterator yields during a call are sent together in the
        next call. At most 4,000 items are buffered. Arrays are copied, so that the iterator may reuse its
        array.

        Example:
            with queue.producer():
              queue.put_from(environment.steps())

        Returns:
            The number of items that the queue accepted: all of them, unless it was cancelled.

        Raises:
            Exception: the iterator's own error; the items before it are in the queue.
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
        """Register this worker as a producer for a block, and close the queue for it at the end of the block.

        This also works if the block puts nothing. If the block raises, the queue stays open for the worker,
        which may be restarted and continue. If several blocks are open in one worker, only the end of the
        last one closes the queue for it.

        Raises:
            QueueClosed: this worker has closed the queue.
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
        """Close the queue for this worker, which then cannot put anything more.

        Once all producers have closed the queue, iteration ends after the last item. The queue closes
        automatically for a worker that has put something, when this worker succeeds and is not restarted.
        """
        self._ask("close_producer")

    # --- consumers -------------------------------------------------------------------------------

    def get(self, timeout_s: float | None = None) -> T:
        """Take the item at the front. Wait while the queue is empty.

        This thread holds the item until it asks for the next one or calls `acknowledge()`.

        Raises:
            QueueEmpty: no item came within the timeout; also a `queue.Empty` and a `TimeoutError`.
            QueueClosed: the queue is empty and all producers have closed, or it was cancelled.
        """
        return self.get_many(1, timeout_s)[0]

    def get_many(self, n: int, timeout_s: float | None = None, *, at_least: int = 1) -> list[T]:
        """Take between `at_least` and `n` items, and wait while there are fewer. Otherwise the same as `get`.

        Example:
            batch = queue.get_many(32, at_least=32)  # whole batches, and a smaller one at the end

        Args:
            at_least: The smallest number of items to return. The list is shorter only once all producers
                have closed, or the queue was cancelled. If the timeout passes first, the call raises, and
                the next call returns the items that had arrived.

        Raises:
            QueueEmpty: fewer than `at_least` items came within the timeout.
            QueueClosed: the queue is empty and all producers have closed, or it was cancelled.
            ValueError: `at_least` is not between 1 and `n`.
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
            if timeout_s is None:
                # This thread is answering a call, and the deadline of that call has passed.
                raise
            raise QueueEmpty(f"{self} did not answer within {timeout_s:g} s") from late
        if not is_there:
            raise QueueClosed(
                f"{self} gives nothing any more: it was cancelled, or it is empty and all producers have"
                " closed"
            )
        return session.next_many(n)

    def __iter__(self) -> Iterator[T]:
        """Iterate over items until all producers have closed and the queue is empty, or it is cancelled.

        The iterator fetches ahead as many items as take some milliseconds to handle. If the loop ends early,
        the items that were not yielded yet go back to the front of the queue. As after `get`, this thread
        still holds the item that was yielded last.
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
        """Mark the items that this thread has taken as handled, so that they are never redelivered."""
        self._acknowledge(self._session())

    def cancel(self) -> None:
        """Cancel the queue: pending items are dropped, `put` returns False, and iteration stops."""
        self._ask("cancel")

    # --- state -----------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the number of items that are waiting now."""
        return int(self._ask("size"))

    def stats(self) -> QueueStats:
        """Return the queue's counts so far."""
        stats: QueueStats = self._ask("queue_stats")
        return stats

    def reports(self) -> list[QueueReport]:
        """Return a report for each consumer that ended while it held items, for the last 1,000."""
        reports: list[QueueReport] = self._ask("reports")
        return reports

    # --- requests --------------------------------------------------------------------------------

    def _put(self, items: list[Item], deadline: float | None, timeout_s: float | None) -> bool:
        """Put items until the deadline, `timeout_s` after the start. False if the queue was cancelled."""
        session: QueueClientSession | None = None
        with contextlib.suppress(IndexError):
            session = self._idle.pop()
        if session is None:
            session = QueueClientSession(self._hello(timeout_s))
        remaining_items = items
        while True:
            # If this request is interrupted, it has no answer yet, so the session must not return to `_idle`.
            state, accepted = self._request(session, "put", deadline, remaining_items)
            remaining_items = remaining_items[accepted:] if accepted else remaining_items
            if not remaining_items or state in (CANCELLED, CLOSED):
                break
            if deadline is not None and time.monotonic() >= deadline:
                self._idle.append(session)
                raise QueueFull(
                    f"{self} had no room within {timeout_s:g} s. Wait longer, give the QueueNode a"
                    " larger maxsize, or have more consumers.",
                    len(items) - len(remaining_items),
                )
        self._idle.append(session)
        if state == CLOSED:
            raise self._closed()
        return not remaining_items

    def _fetch(
        self, session: ConsumerSession, n: int, deadline: float | None, timeout_s: float | None
    ) -> bool:
        """Acknowledge the items that the thread got, give back the rest, and take up to n new ones.

        Return False if the queue has ended, so that no more items will come.
        """
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
        """Take more items, up to n in all, and keep the items in hand.

        The chunk stays shorter than `at_least` only if the queue has ended.
        """
        self._finish(session, deadline)
        while len(session.chunk) < at_least:
            handled = 0
            kept = session.given + len(session.chunk)
            session.unsettled = handled, kept
            n_more = n - len(session.chunk)
            state, items = self._request(session, "get", deadline, n_more, handled, kept)
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
        """Acknowledge `handled` items and keep the next `kept` items, without taking more.

        Call `_finish` first.
        """
        session.unsettled = handled, kept
        self._finish(session)

    def _finish(self, session: ConsumerSession, deadline: float | None = None) -> None:
        """Repeat an interrupted `_settle` with the same arguments. The queue may have done it already.

        If an earlier request took items, but its answer was lost, the answer to this one contains the items.
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
        """Send one numbered request, and repeat it until the queue answers."""
        while True:
            # Check before the call, not after it. So an item that arrives during the call is still taken.
            is_stopping = context.is_stopping()
            wait_s = 0.0 if is_stopping else _SLICE_S
            calls = self._calls
            if deadline is not None:
                left_s = max(0.0, deadline - time.monotonic())
                wait_s = min(wait_s, left_s)
                calls = with_options(calls, timeout_s=left_s + _MARGIN_S)
            call = getattr(calls, method)
            key = session.key
            number = session.number
            queue_id = session.queue_id
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
            if not redelivers:
                # Don't fetch ahead: if a consumer dies, the queue doesn't redeliver the items it has fetched.
                self._most = 1
            self._queue_id = queue_id
        return self._queue_id

    def _session(self, timeout_s: float | None = None) -> ConsumerSession:
        """Return the calling thread's session."""
        session: ConsumerSession | None = getattr(self._local, "session", None)
        if session is None:
            session = ConsumerSession(self._hello(timeout_s))
            self._local.session = session
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
        """Forget the parent's open `producer()` blocks in a forked child.

        They belong to the parent: leaving them in the child must not close the queue.
        """
        self._n_producing = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Queue, (self._client,)

    def __repr__(self) -> str:
        return f"<Queue {self._client._name or self._client.address}>"
