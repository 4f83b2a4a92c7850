"""The server of a queue. It answers the clients' calls, and lets them wait.

    put, get ──▶ answered at once                       put: there is room; get: there is an item
             └─▶ a call in a line ──▶ answered             another call has made room, or has put an item
                                  ──▶ "full", "empty"      its time is up
                                  ──▶ nothing              its caller has gone

The server takes items for an answer only once the caller can no longer cancel the call. If the answer is lost
all the same, the caller's session holds the items until the caller asks again, or the session ends.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from launchpad.courier import caller
from launchpad.courier.promise import Promise
from launchpad.queues.contents import (
    CANCELLED,
    CLOSED,
    EMPTY,
    ENDED,
    FULL,
    OK,
    QueueContents,
    QueueReport,
    QueueSession,
    QueueStats,
    Reply,
)
from launchpad.queues.packing import Item
from launchpad.services.waiting import WaitingCalls

AGAIN = "again"
LOST = "lost"
GONE = "gone"
"""States of a reply, in addition to those of the contents.

AGAIN: the queue's worker is stopping, so the client must ask again. LOST: this is not the queue that the
client knew, but a later one. GONE: the caller's attempt counts as ended.
"""

_log = logging.getLogger("launchpad.queue")
_ENDLESS = (
    "%s is empty, and all workers that have put into it have closed; still its consumers wait, until it is"
    " cancelled or the program stops. Let iteration end by itself: lp.QueueNode(producers=…), how many put."
)
_ABSENT_AFTER_S = 10.0
_NAMED = 10
_ABSENT = (
    "%s: nothing was put for %.0f s, and consumers wait: %d of %d producers have come (%s), and iteration"
    " does not end before all have. A worker comes with its first put, or by `with queue.producer():`. If"
    " there are fewer of them, say so: lp.QueueNode(producers=…)."
)
_FAILED_PRODUCER = (
    "%s: the producer %s has failed, and is not started again: it counts as closed, though it may have had"
    " more to put"
)


class QueueServer:
    """A server that gives clients access to the contents of a queue. Safe from any thread.

    Args:
        name: The name of the queue's worker, for messages.
        contents: The queue's contents. From now on only the server may use them.
        queue_id: The identity of this queue. If a restart has lost the waiting items, the identity changes.
    """

    def __init__(self, name: str, contents: QueueContents, queue_id: str = "") -> None:
        self.name = name
        self.contents = contents
        self.queue_id = queue_id or os.urandom(8).hex()
        self._calls = WaitingCalls(name)
        # The line is not ordered: a consumer that keeps an item in hand may get the reply that the queue has
        # ended before the consumers ahead of it.
        self._getters = self._calls.line(is_ordered=False)
        self._putters = self._calls.line()
        self._is_closed = False
        self._has_hinted = False
        self._has_named_absent = False
        self._last_put = time.monotonic()

    # --- called by clients -----------------------------------------------------------------------

    def hello(self) -> tuple[str, bool]:
        """Return the queue's id, and True if it redelivers items."""
        return self.queue_id, self.contents.redeliver

    def put(
        self, key: str, number: int, queue_id: str, items: Sequence[Item], wait_s: float
    ) -> Reply | Promise:
        """Accept items, and return how many were accepted. Wait for room."""
        with self._calls.changing():
            session = self._session(key, number, queue_id)
            if not isinstance(session, QueueSession):
                return session
            if not session.begin(number):
                if session.answer is not None:
                    return session.answer
                self._calls.drop(self._putters, session)
            elif not self.contents.register(session.worker, session.attempt):
                return self._reply(session, CLOSED, 0)
            self._last_put = time.monotonic()

            def is_ready() -> bool:
                if self.contents.is_cancelled:
                    return True
                if not self.contents.has_room:
                    return session.accepted == len(items)
                more_items = items[session.accepted :]
                return self.contents.put(session, more_items) == len(more_items)

            def reply() -> Reply:
                state = CANCELLED if self.contents.is_cancelled else OK
                return self._reply(session, state, session.accepted)

            def is_full() -> Reply:
                return self._reply(session, FULL, session.accepted)

            return self._calls.answer(
                self._putters, is_ready, reply, is_full, wait_s, owner=session
            )

    def get(
        self,
        key: str,
        number: int,
        queue_id: str,
        n: int,
        handled: int,
        kept: int,
        wait_s: float,
    ) -> Reply | Promise:
        """Return up to `n` items, and wait until there is one.

        First settle the items that the session holds: the first `handled` of them are handled, the next
        `kept` stay in hand, and the rest go back.
        """
        contents = self.contents
        with self._calls.changing():
            session = self._session(key, number, queue_id)
            if not isinstance(session, QueueSession):
                return session
            if session.begin(number):
                contents.settle(session, handled, kept)
            elif session.answer is not None:
                return session.answer
            else:
                self._calls.drop(self._getters, session)

            def is_ready() -> bool:
                return n == 0 or contents.n_waiting > 0 or contents.is_over(session)

            def reply() -> Reply:
                if n == 0 or contents.n_waiting:
                    return self._reply(session, OK, contents.take(session, n))
                return self._reply(session, ENDED, [])

            def is_empty() -> Reply:
                if wait_s > 0:
                    self._give_hints()
                return self._reply(session, EMPTY, [])

            return self._calls.answer(
                self._getters, is_ready, reply, is_empty, wait_s, owner=session
            )

    def register(self) -> bool:
        """Register the calling worker as a producer. False if it has closed."""
        peer = _peer()
        with self._calls.changing():
            return self.contents.register(peer.name, peer.attempt)

    def close_producer(self) -> None:
        """Close the queue for the calling worker, which will put nothing more."""
        peer = _peer()
        with self._calls.changing():
            self.contents.close(peer.name, peer.attempt)

    def cancel(self) -> None:
        with self._calls.changing():
            self.contents.cancel()

    def size(self) -> int:
        return self.contents.n_waiting

    # This method is not called `stats`, because a client has a method of that name.
    def queue_stats(self) -> QueueStats:
        with self._calls.changing():
            return self.contents.stats()

    def reports(self) -> list[QueueReport]:
        with self._calls.changing():
            return list(self.contents.reports)

    # --- called by the queue's worker ------------------------------------------------------------

    def worker_ended(self, worker: str, attempt: int, *, is_well: bool, is_over: bool) -> None:
        """Handle the supervisor's report that an attempt of a worker has ended.

        `is_well` is True if the attempt succeeded. `is_over` is True if the worker is not restarted; in this
        case, the queue closes for the worker.
        """
        with self._calls.changing():
            if self._is_closed:
                # The next attempt of the queue's worker receives all these reports again.
                return
            for line in (self._getters, self._putters):
                for call in tuple(line):
                    if call.owner.worker == worker and 0 < call.owner.attempt <= attempt:
                        # If workers are threads, a caller that has ended may still wait for its answer.
                        self._calls.end_call(line, call, lambda: (GONE, None))
            for report in self.contents.end(worker, attempt, is_well=is_well):
                _log.warning("%s: %s", self.name, report)
            if is_over and self.contents.is_open(worker):
                if not is_well:
                    _log.warning(_FAILED_PRODUCER, self.name, worker)
                self.contents.close(worker, attempt)
            if not is_over:
                self.contents.reopen(worker, attempt)

    def worker_restarted(self, worker: str, attempt: int) -> None:
        """Handle the supervisor's later report that a worker is restarted after this attempt."""
        with self._calls.changing():
            self.contents.reopen(worker, attempt)

    def close(self) -> None:
        """End all waits. The callers ask again. If the queue is restarted, its new attempt answers them."""
        with self._calls.changing():
            self._is_closed = True
        self._calls.end(lambda: (AGAIN, None))

    # --- called with the lock --------------------------------------------------------------------

    def _session(self, key: str, number: int, queue_id: str) -> QueueSession | Reply:
        if self._is_closed:
            return AGAIN, None
        if queue_id != self.queue_id:
            return LOST, self.queue_id
        if not self.contents.has_room_for_sessions:
            self.contents.forget_sessions({c.owner for c in (*self._getters, *self._putters)})
        peer = _peer()
        session = self.contents.session(key, peer.name, peer.attempt)
        if session is None:
            return GONE, None
        if number < session.number:
            # This is a late duplicate of a request that was answered on another connection.
            return OK, None
        return session

    def _reply(self, session: QueueSession, state: str, value: object) -> Reply:
        session.answer = state, value
        return session.answer

    def _give_hints(self) -> None:
        """Log, once for each reason, why a consumer may wait indefinitely."""
        contents = self.contents
        if contents.is_endless and not self._has_hinted:
            self._has_hinted = True
            _log.warning(_ENDLESS, self.name)
        waited_s = time.monotonic() - self._last_put
        present_producers = contents.producers_that_have_come
        is_late = waited_s >= _ABSENT_AFTER_S and len(present_producers) < (contents.producers or 0)
        if is_late and not self._has_named_absent:
            self._has_named_absent = True
            n_present = len(present_producers)
            names = list(present_producers[:_NAMED])
            if n_present > _NAMED:
                names.append("…")
            text = ", ".join(names) or "none"
            _log.warning(_ABSENT, self.name, waited_s, n_present, contents.producers, text)


def _peer() -> caller.Peer:
    call = caller.current.get()
    return caller.own_peer() if call is None else call.peer
