"""The queue as it is called: who waits for what, and until when.

    put, get ──▶ answered at once                       there is room; there is an item
             └─▶ a Waiter, with a Promise ──▶ answered when another call makes that so
                                          ──▶ "full", "empty"      its time is up
                                          ──▶ nothing              its caller has gone: it is cancelled

No thread and no task waits for a call, so that hundreds may. What an answer takes is taken when the Promise
has begun, from when on it cannot be cancelled; if the answer does not arrive all the same, the items are in
the hands of the caller's session until that asks again or has ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from launchpad.courier import caller
from launchpad.courier.own_threads import OwnThread
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


@dataclass(eq=False)
class Waiter:
    """A call that waits: a get of up to `n`, or a put of `items`."""

    session: QueueSession
    deadline: float
    promise: Promise
    n: int = 0
    items: Sequence[Item] = ()


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
        self._changed = threading.Condition(threading.Lock())
        self._getters: deque[Waiter] = deque()
        self._putters: deque[Waiter] = deque()
        self._answers: list[tuple[Promise, Reply]] = []  # to be given once the lock is free
        self._next_due = 0.0  # when the timer looks again, if nothing comes before
        self._is_closed = self._has_hinted = self._has_named_absent = False
        self._last_put = time.monotonic()
        self._timer = OwnThread(target=self._watch_time, name=f"{name}-timer")
        self._timer.start()

    # --- what clients call -----------------------------------------------------------------------

    def hello(self) -> tuple[str, bool]:
        """Which queue this is, and whether it delivers items again."""
        return self.queue_id, self.contents.redeliver

    def put(
        self, key: str, number: int, queue_id: str, items: Sequence[Item], wait_s: float
    ) -> Reply | Promise:
        """Takes items, and says how many it has taken; waits for room."""
        with self._locked():
            session = self._session(key, number, queue_id)
            if not isinstance(session, QueueSession):
                return session
            if not session.begin(number):
                if session.reply is not None:
                    return session.reply
                items = items[session.accepted :]
                _drop(self._putters, session)
            elif not self.contents.register(session.worker, session.attempt):
                return self._reply(session, CLOSED, 0)
            if self.contents.is_cancelled:
                return self._reply(session, CANCELLED, session.accepted)
            self._last_put = time.monotonic()
            if not self._putters:
                items = items[self.contents.put(session, items) :]
                self._settle()
            if not items:
                return self._reply(session, OK, session.accepted)
            if wait_s <= 0:
                return self._reply(session, FULL, session.accepted)
            return self._wait(self._putters, Waiter(session, wait_s, Promise(), items=items))

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
        with self._locked():
            session = self._session(key, number, queue_id)
            if not isinstance(session, QueueSession):
                return session
            if session.begin(number):
                self.contents.settle(session, handled, kept)
            elif session.reply is not None:
                return session.reply
            else:
                _drop(self._getters, session)
            reply: Reply | Promise
            if n == 0 or self.contents.n_waiting:
                reply = self._reply(session, OK, self.contents.take(session, n))
            elif self.contents.is_over(session):
                reply = self._reply(session, ENDED, [])
            elif wait_s <= 0:
                reply = self._reply(session, EMPTY, [])
            else:
                reply = self._wait(self._getters, Waiter(session, wait_s, Promise(), n=n))
            self._settle()
            return reply

    def register(self) -> bool:
        """The calling worker is a producer; False if it has closed."""
        peer = _peer()
        with self._changed:
            return self.contents.register(peer.name, peer.attempt)

    def close_producer(self) -> None:
        """The calling worker puts nothing any more."""
        peer = _peer()
        with self._locked():
            self.contents.close(peer.name, peer.attempt)
            self._settle()

    def cancel(self) -> None:
        with self._locked():
            self.contents.cancel()
            self._settle()

    def size(self) -> int:
        return self.contents.n_waiting

    def queue_stats(self) -> QueueStats:  # a client has `stats` of its own
        with self._changed:
            return self.contents.stats()

    def reports(self) -> list[QueueReport]:
        with self._changed:
            return list(self.contents.reports)

    # --- what the worker does --------------------------------------------------------------------

    def worker_ended(self, worker: str, attempt: int, *, is_well: bool, is_over: bool) -> None:
        """What the supervisor says: this attempt has ended; well; and is not started again, so it closes."""
        with self._locked():
            if self._is_closed:
                return  # the next start of this worker is told of all ends again
            for waiting in (self._getters, self._putters):
                for waiter in list(waiting):
                    if waiter.session.worker == worker and 0 < waiter.session.attempt <= attempt:
                        waiting.remove(waiter)
                        if waiter.promise.begin():  # on threads there may be one to be told
                            self._answers.append((waiter.promise, (GONE, None)))
            for report in self.contents.end(worker, attempt, is_well=is_well):
                _log.warning("%s: %s", self.name, report)
            if is_over and self.contents.is_open(worker):
                if not is_well:
                    _log.warning(_FAILED_PRODUCER, self.name, worker)
                self.contents.close(worker, attempt)
            if not is_over:
                self.contents.reopen(worker, attempt)
            self._settle()

    def worker_restarted(self, worker: str, attempt: int) -> None:
        """What the supervisor says: this attempt, which was over, is followed by another after all."""
        with self._changed:
            self.contents.reopen(worker, attempt)

    def close(self) -> None:
        """Ends all waits: their callers ask again, at the next queue if there is one."""
        with self._locked():
            self._is_closed = True
            for waiter in (*self._getters, *self._putters):
                if waiter.promise.begin():
                    self._answers.append((waiter.promise, (AGAIN, None)))
            self._getters.clear()
            self._putters.clear()
            self._changed.notify_all()
        self._timer.join()

    # --- the rest holds the lock -----------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock; when it is free again, those whose wait is over are answered."""
        answers: Sequence[tuple[Promise, Reply]] = ()
        try:
            with self._changed:
                yield
                if self._answers:
                    answers, self._answers = self._answers, []
        finally:
            for promise, reply in answers:
                promise.set_result(reply)

    def _session(self, key: str, number: int, queue_id: str) -> QueueSession | Reply:
        if self._is_closed:
            return AGAIN, None
        if queue_id != self.queue_id:
            return LOST, self.queue_id
        if not self.contents.has_room_for_sessions:
            self.contents.forget_sessions({w.session for w in (*self._getters, *self._putters)})
        peer = _peer()
        session = self.contents.session(key, peer.name, peer.attempt)
        if session is None:
            return GONE, None
        if number < session.number:  # a late duplicate, whose answer has come on another connection
            return OK, None
        return session

    def _reply(self, session: QueueSession, state: str, value: object) -> Reply:
        session.reply = state, value
        return session.reply

    def _answer(self, waiter: Waiter, state: str, value: object) -> None:
        self._answers.append((waiter.promise, self._reply(waiter.session, state, value)))

    def _wait(self, waiting: deque[Waiter], waiter: Waiter) -> Promise:
        waiter.deadline += time.monotonic()
        waiting.append(waiter)
        if waiter.deadline < self._next_due:
            self._changed.notify_all()
        return waiter.promise

    def _settle(self) -> None:
        """Answers those that can be: room makes items, items make room."""
        contents, getters, putters = self.contents, self._getters, self._putters
        while True:
            while getters and contents.n_waiting:
                getter = getters.popleft()
                if getter.promise.begin():
                    self._answer(getter, OK, contents.take(getter.session, getter.n))
            if not putters or not (contents.has_room or contents.is_cancelled):
                break
            putter = putters[0]
            if not putter.promise.is_done and not contents.is_cancelled:
                putter.items = putter.items[contents.put(putter.session, putter.items) :]
                if putter.items:
                    continue
            putters.popleft()
            if putter.promise.begin():
                state = CANCELLED if contents.is_cancelled else OK
                self._answer(putter, state, putter.session.accepted)
        for getter in [g for g in getters if contents.is_over(g.session)]:
            getters.remove(getter)
            if getter.promise.begin():
                self._answer(getter, ENDED, [])

    def _watch_time(self) -> None:
        """Answers those whose time is up; a thread of its own."""
        while True:
            with self._locked():
                now = time.monotonic()
                for waiting, state in ((self._getters, EMPTY), (self._putters, FULL)):
                    for waiter in [w for w in waiting if w.deadline <= now or w.promise.is_done]:
                        waiting.remove(waiter)
                        if waiter.promise.begin():
                            taken: object = [] if state == EMPTY else waiter.session.accepted
                            self._answer(waiter, state, taken)
                            if state == EMPTY:
                                self._give_hints(now)
                if self._is_closed:
                    return
                if not self._answers:
                    due = [w.deadline for w in (*self._getters, *self._putters)]
                    self._next_due = min(due, default=float("inf"))
                    self._changed.wait(max(0.0, self._next_due - now) if due else None)

    def _give_hints(self, now: float) -> None:
        """Says once why a consumer may wait for ever."""
        contents = self.contents
        if contents.is_endless and not self._has_hinted:
            self._has_hinted = True
            _log.warning(_ENDLESS, self.name)
        waited_s, come = now - self._last_put, contents.producers_that_have_come
        is_late = waited_s >= _ABSENT_AFTER_S and len(come) < (contents.producers or 0)
        if is_late and not self._has_named_absent:
            self._has_named_absent = True
            names = ", ".join([*come[:_NAMED], "…"] if len(come) > _NAMED else come) or "none"
            _log.warning(_ABSENT, self.name, waited_s, len(come), contents.producers, names)


def _drop(waiting: deque[Waiter], session: QueueSession) -> None:
    """The session asks again on another connection: what waited for it before is in vain."""
    for waiter in waiting:
        if waiter.session is session:
            waiter.promise.cancel()


def _peer() -> caller.Peer:
    call = caller.current.get()
    return caller.own_peer() if call is None else call.peer
