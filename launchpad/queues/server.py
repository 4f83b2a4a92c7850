"""The queue as it is called: who waits for what, and until when.

    put, get ──▶ answered at once                       there is room; there is an item
             └─▶ a call in a line ──▶ answered when another call makes that so
                                  ──▶ "full", "empty"      its time is up
                                  ──▶ nothing              its caller has gone

What an answer takes is taken when its caller cannot cancel it any more. If the answer does not arrive all the
same, the items are in the hands of the caller's session until that asks again or has ended.
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

AGAIN, LOST, GONE = "again", "lost", "gone"
"""The queue's worker is stopping: ask once more. It is another queue by now. The caller counts as ended."""

_log = logging.getLogger("launchpad.queue")
_ENDLESS = (
    "%s is empty, and all workers that have put into it have closed; still its consumers wait, until it is"
    " cancelled or the program stops. Let iteration end by itself: lp.QueueNode(producers=…), how many put."
)
_ABSENT_AFTER_S, _NAMED = 10.0, 10
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
    """Serves the contents of a queue to clients. Safe from any thread.

    Args:
        name: The queue's worker, for messages.
        contents: What it holds; touched by nothing else from now on.
        queue_id: Which queue this is: another one after a restart that has lost what waited.
    """

    def __init__(self, name: str, contents: QueueContents, queue_id: str = "") -> None:
        self.name, self.contents = name, contents
        self.queue_id = queue_id or os.urandom(8).hex()
        self._calls = WaitingCalls(name)
        # Each by itself: one that has kept an item in hand may have come to its end before the others.
        self._getters = self._calls.line(is_ordered=False)
        self._putters = self._calls.line()
        self._is_closed = False
        self._has_hinted = False
        self._has_named_absent = False
        self._last_put = time.monotonic()

    # --- what clients call -----------------------------------------------------------------------

    def hello(self) -> tuple[str, bool]:
        """Which queue this is, and whether it delivers items again."""
        return self.queue_id, self.contents.redeliver

    def put(
        self, key: str, number: int, queue_id: str, items: Sequence[Item], wait_s: float
    ) -> Reply | Promise:
        """Takes items, and says how many it has taken; waits for room."""
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
                left = items[session.accepted :]
                return self.contents.put(session, left) == len(left)

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
        """Gives up to `n` items; waits for one. Of those taken before `handled` are, and `kept` are kept."""
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
        """The calling worker is a producer; False if it has closed."""
        peer = _peer()
        with self._calls.changing():
            return self.contents.register(peer.name, peer.attempt)

    def close_producer(self) -> None:
        """The calling worker puts nothing any more."""
        peer = _peer()
        with self._calls.changing():
            self.contents.close(peer.name, peer.attempt)

    def cancel(self) -> None:
        with self._calls.changing():
            self.contents.cancel()

    def size(self) -> int:
        return self.contents.n_waiting

    def queue_stats(self) -> QueueStats:  # a client has `stats` of its own
        with self._calls.changing():
            return self.contents.stats()

    def reports(self) -> list[QueueReport]:
        with self._calls.changing():
            return list(self.contents.reports)

    # --- what the worker does --------------------------------------------------------------------

    def worker_ended(self, worker: str, attempt: int, *, is_well: bool, is_over: bool) -> None:
        """What the supervisor says: this attempt has ended; well; and is not started again, so it closes."""
        with self._calls.changing():
            if self._is_closed:
                return  # the next start of this worker is told of all ends again
            for line in (self._getters, self._putters):
                for call in tuple(line):
                    if call.owner.worker == worker and 0 < call.owner.attempt <= attempt:
                        # On threads there may be one to be told.
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
        """What the supervisor says: this attempt, which was over, is followed by another after all."""
        with self._calls.changing():
            self.contents.reopen(worker, attempt)

    def close(self) -> None:
        """Ends all waits: their callers ask again, at the next queue if there is one."""
        with self._calls.changing():
            self._is_closed = True
        self._calls.end(lambda: (AGAIN, None))

    # --- the rest holds the lock -----------------------------------------------------------------

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
        if number < session.number:  # a late duplicate, whose answer has come on another connection
            return OK, None
        return session

    def _reply(self, session: QueueSession, state: str, value: object) -> Reply:
        session.answer = state, value
        return session.answer

    def _give_hints(self) -> None:
        """Says once why a consumer may wait for ever."""
        contents = self.contents
        if contents.is_endless and not self._has_hinted:
            self._has_hinted = True
            _log.warning(_ENDLESS, self.name)
        waited_s = time.monotonic() - self._last_put
        come = contents.producers_that_have_come
        is_late = waited_s >= _ABSENT_AFTER_S and len(come) < (contents.producers or 0)
        if is_late and not self._has_named_absent:
            self._has_named_absent = True
            names = ", ".join([*come[:_NAMED], "…"] if len(come) > _NAMED else come) or "none"
            _log.warning(_ABSENT, self.name, waited_s, len(come), contents.producers, names)


def _peer() -> caller.Peer:
    call = caller.current.get()
    return caller.own_peer() if call is None else call.peer
