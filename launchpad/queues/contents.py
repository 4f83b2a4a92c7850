"""What a queue holds, and in whose hands the rest is: pure, without locks, clocks and calls.

    put ──▶ waiting ──take──▶ in hand ──▶ handled    its consumer has asked for the next, or has ended well
               ▲                 │
            returned ◀───────────┤                   … has given it back, and had not begun
               ▲                 │
               └── redelivered ◀─┴──▶ lost           … has died, and may have handled it

Rule 1: an item that was accepted is in exactly one of these places.
Rule 2: no more than `maxsize` items wait. Those that have returned come on top: no consumer can refuse them.
Rule 3: what goes back goes to the front, in the order in which it was put.
Rule 4: each request of a session has a number, and one that is repeated changes nothing.
Rule 5: of more than 10,000 sessions those are forgotten that have asked for nothing for longest; but none
        that has items in hand, or waits. What it asks then is new, also if it has asked it before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launchpad.queues.packing import Item, unpack
from launchpad.services.requests import Conversation

_MAX_BYTES = 4 << 20  # taken at once, but for an item that is larger
_MAX_REPORTS, _MAX_REPORT_BYTES = 1000, 64 << 20
_MOST_SESSIONS = 10_000

Numbered = tuple[int, Item]
Reply = tuple[str, Any]

OK, FULL, EMPTY = "ok", "full", "empty"
CANCELLED, CLOSED, ENDED = "cancelled", "closed", "ended"


class QueueSession(Conversation[Reply]):
    """A consumer's thread or a producer's, as the queue knows it.

    Attributes:
        worker, attempt: Whose it is; attempt 0 for a process that is no worker.
        accepted: How many items of its last request were taken.
        in_hand: What it has taken and not acknowledged.
    """

    def __init__(self, worker: str, attempt: int) -> None:
        super().__init__()
        self.worker = worker
        self.attempt = attempt
        self.accepted = 0
        self.in_hand: list[Numbered] = []

    def begin(self, number: int) -> bool:
        is_new = super().begin(number)
        if is_new:
            self.accepted = 0
        return is_new


@dataclass(frozen=True)
class QueueReport:
    """A consumer ended with items in its hands, which it may have handled.

    Example:
        for report in queue.reports():
            print(report.consumer, report.numbers, report.items)

    Attributes:
        consumer, attempt: Which worker, and which start of it.
        numbers: The items' numbers in the order in which they were put, from 1.
        is_lost: They are not delivered again, as the queue has `redeliver=False`.
        packed: The items as the queue keeps them; empty in old ones, where these are large.
    """

    consumer: str
    attempt: int
    numbers: tuple[int, ...]
    is_lost: bool
    packed: tuple[Item, ...] = field(repr=False, default=())

    @property
    def items(self) -> list[Any]:
        """The items; where their classes can be imported."""
        return [unpack(each) for each in self.packed]

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        which = f"number {first}" if first == last else f"numbers {first} to {last}"
        again = "not delivered again (redeliver=False)" if self.is_lost else "delivered again"
        return (
            f"{self.consumer} (attempt {self.attempt}) ended with {len(self.numbers)} items in hand,"
            f" {which}, which it may have handled: {again}"
        )


@dataclass(frozen=True)
class QueueStats:
    """What a queue has counted: `queue.stats()`.

    At any moment these are equal, whatever dies:

        put                              waiting + in_hand + handled + lost + dropped
        taken                            in_hand + handled + lost + returned + redelivered

    Example:
        stats = queue.stats()
        print(f"{stats.waiting} wait, {stats.handled} of {stats.put} are handled")

    Attributes:
        put: Items accepted.
        taken: Items given to consumers; those that went back and were given again count again.
        waiting: Items that wait, those that have come back among them.
        in_hand: Items that a consumer has, and has not acknowledged.
        handled: Items that were handled: acknowledged.
        returned: Items that went back because their consumer had fetched them ahead, and had not begun.
        redelivered: Items that went back because their consumer had died: they may be handled twice.
        lost: Those that were not delivered again, with `redeliver=False`.
        dropped: Items that waited when the queue was cancelled, or went back after that.
        most_waiting: The most that ever waited, without those that came back.
        closed: The producers that have closed.
        is_cancelled: Whether a consumer has had enough.
    """

    put: int
    taken: int
    waiting: int
    in_hand: int
    handled: int
    returned: int
    redelivered: int
    lost: int
    dropped: int
    most_waiting: int
    closed: tuple[str, ...]
    is_cancelled: bool


class QueueContents:
    """The items, sessions and producers of one queue.

    Args:
        maxsize: How many items wait at most.
        producers: How many workers put; None: it is not known, and the queue has no end but `cancel`.
        redeliver: Whether an item may be delivered again if its consumer has died.
    """

    def __init__(self, maxsize: int, producers: int | None, redeliver: bool) -> None:
        self.maxsize, self.producers, self.redeliver = maxsize, producers, redeliver
        self.sessions: dict[str, QueueSession] = {}  # the last to ask for anything at the end
        self._forgets_at = _MOST_SESSIONS
        self.is_cancelled = False
        self.reports: deque[QueueReport] = deque(maxlen=_MAX_REPORTS)
        self._waiting: deque[Numbered] = deque()
        self._returned: deque[Numbered] = deque()
        self._open: dict[str, int] = {}  # producer → its attempt
        self._closed: dict[str, int] = {}
        self._ended: dict[str, int] = {}  # worker → its last attempt that has ended
        self._put = self._taken = self._handled = self._n_returned = self._redelivered = 0
        self._lost = self._dropped = self._most_waiting = 0

    @property
    def n_waiting(self) -> int:
        return len(self._waiting) + len(self._returned)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < self.maxsize

    def session(self, key: str, worker: str, attempt: int) -> QueueSession | None:
        """The session of this key; None for a worker that has ended, and does not wait for an answer."""
        found = self.sessions.pop(key, None)
        if found is None:
            if 0 < attempt <= self._ended.get(worker, 0):
                return None
            found = QueueSession(worker, attempt)
        self.sessions[key] = found
        return found

    @property
    def has_room_for_sessions(self) -> bool:
        return len(self.sessions) < self._forgets_at

    def forget_sessions(self, waiting: Collection[QueueSession]) -> None:
        """Forgets those that have asked for nothing for longest, until half as many are left as may be."""
        n_surplus = len(self.sessions) - _MOST_SESSIONS // 2
        idle = [k for k, each in self.sessions.items() if not each.in_hand and each not in waiting]
        for key in idle[: max(0, n_surplus)]:
            del self.sessions[key]
        self._forgets_at = max(_MOST_SESSIONS, 2 * len(self.sessions))  # if most are not idle

    def register(self, worker: str, attempt: int) -> bool:
        """This worker is a producer; False if it has closed. A later attempt may open again."""
        if worker in self._closed:
            if not attempt > self._closed[worker]:
                return False
            del self._closed[worker]
        self._open[worker] = max(attempt, self._open.get(worker, 0))
        return True

    def put(self, session: QueueSession, items: Sequence[Item]) -> int:
        """Takes as many as there is room for, and returns how many."""
        n = min(len(items), self.maxsize - len(self._waiting))
        numbers = range(self._put + 1, self._put + n + 1)
        self._waiting.extend(zip(numbers, items if n == len(items) else items[:n], strict=True))
        session.accepted += n
        self._put += n
        self._most_waiting = max(self._most_waiting, len(self._waiting))
        return n

    def take(self, session: QueueSession, n: int) -> list[Item]:
        """Gives it up to n items, from the front, fewer if they are large."""
        taken: list[Numbered] = []
        size = 0
        for source in (self._returned, self._waiting):
            while source and len(taken) < n and size < _MAX_BYTES:
                numbered = source.popleft()
                taken.append(numbered)
                size += len(numbered[1])
        session.in_hand += taken
        self._taken += len(taken)
        return [item for _, item in taken]

    def settle(self, session: QueueSession, handled: int, kept: int) -> None:
        """Of what it has in hand, so many are handled, and the next are kept; it gives back the rest."""
        in_hand = session.in_hand
        self._handled += min(handled, len(in_hand))
        session.in_hand = in_hand[handled : handled + kept]
        self._n_returned += len(in_hand[handled + kept :])
        self._put_back(in_hand[handled + kept :])

    def end(self, worker: str, attempt: int, *, is_well: bool) -> list[QueueReport]:
        """This attempt of a worker has ended, and with it all before: what it had in hand goes back.

        `is_well`: it has succeeded, so that it has handled what it took.
        """
        self._ended[worker] = max(attempt, self._ended.get(worker, 0))
        ended = {
            key: each
            for key, each in self.sessions.items()
            if each.worker == worker and 0 < each.attempt <= attempt
        }
        found: list[QueueReport] = []
        for key, session in ended.items():
            del self.sessions[key]
            if is_well and session.attempt == attempt:
                self.settle(session, len(session.in_hand), 0)
            elif session.in_hand:
                found.append(self._report(session))
        return found

    def end_all(self) -> list[QueueReport]:
        """A new launch goes on with what is here: no session and no producer of before is left."""
        found = [self._report(each) for each in self.sessions.values() if each.in_hand]
        self.sessions, self._open, self._closed, self._ended = {}, {}, {}, {}
        self.is_cancelled = False
        return found

    def close(self, worker: str, attempt: int) -> None:
        """This producer puts nothing any more; unless a later attempt of it has opened by now."""
        if attempt < max(self._open.get(worker, 0), self._closed.get(worker, 0)):
            return
        self._open.pop(worker, None)
        self._closed[worker] = attempt

    def reopen(self, worker: str, attempt: int) -> None:
        """This attempt of a worker is followed by another: if it has closed, its next one has not."""
        if 0 < self._closed.get(worker, 0) <= attempt:
            del self._closed[worker]
            self._open[worker] = attempt + 1

    def is_open(self, worker: str) -> bool:
        """Whether this worker is a producer that has not closed."""
        return worker in self._open

    @property
    def producers_that_have_come(self) -> list[str]:
        """Those that have put something or registered, whether they have closed or not."""
        return sorted({*self._open, *self._closed})

    @property
    def is_endless(self) -> bool:
        """Whether it goes on, although all that have put into it have closed: nothing says how many do."""
        return self.producers is None and bool(self._closed) and not self._open

    def cancel(self) -> None:
        """What waits is dropped, and nothing is taken any more."""
        self.is_cancelled = True
        self._dropped += self.n_waiting
        self._waiting.clear()
        self._returned.clear()

    def is_over(self, session: QueueSession) -> bool:
        """Whether nothing will come for this consumer any more.

        What others have in hand may come back, as long as it is not acknowledged: other workers, and an
        attempt of this one of which the queue is about to be told that it has ended. It does not wait for
        that if it has kept something in hand itself: others may wait for this.
        """
        if self.is_cancelled:
            return True
        if self.producers is None or len(self._closed) < self.producers or self.n_waiting:
            return False
        own = session.worker, session.attempt
        return (
            not self.redeliver
            or bool(session.in_hand)
            or not any(
                each.in_hand and each.attempt and (each.worker, each.attempt) != own
                for each in self.sessions.values()
            )
        )

    def stats(self) -> QueueStats:
        return QueueStats(
            put=self._put,
            taken=self._taken,
            waiting=self.n_waiting,
            in_hand=sum(len(each.in_hand) for each in self.sessions.values()),
            handled=self._handled,
            returned=self._n_returned,
            redelivered=self._redelivered,
            lost=self._lost,
            dropped=self._dropped,
            most_waiting=self._most_waiting,
            closed=tuple(sorted(self._closed)),
            is_cancelled=self.is_cancelled,
        )

    def _put_back(self, items: Sequence[Numbered]) -> None:
        if self.is_cancelled:
            self._dropped += len(items)
        elif items:  # numbers differ, so that no items are compared
            self._returned = deque(sorted([*self._returned, *items]))

    def _report(self, session: QueueSession) -> QueueReport:
        items, session.in_hand = session.in_hand, []
        numbers, packed = zip(*items, strict=True)
        found = QueueReport(
            session.worker, session.attempt, numbers, not self.redeliver, tuple(packed)
        )
        self.reports.append(found)
        left = _MAX_REPORT_BYTES
        for number in reversed(range(len(self.reports))):  # the latest keep their items
            left -= sum(map(len, self.reports[number].packed))
            if left < 0:
                self.reports[number] = replace(self.reports[number], packed=())
        if self.redeliver:
            self._redelivered += len(items)
            self._put_back(items)
        else:
            self._lost += len(items)
        return found
