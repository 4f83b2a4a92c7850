"""The state of a queue: items waiting, and items held by consumers. Pure: no locks, clocks or calls.

    put ──▶ waiting ──take──▶ in hand ──▶ handled    its consumer has asked for the next, or has succeeded
               ▲                 │
            returned ◀───────────┤                   its consumer has not begun it, and has given it back
               ▲                 │
               └── redelivered ◀─┴──▶ lost           its consumer has died, and may have handled it

Rule 1: an item that was accepted is in exactly one of these places.
Rule 2: at most `maxsize` items wait. Items that went back don't count, because the queue cannot refuse them.
Rule 3: items that go back go to the front, in the order in which they were put.
Rule 4: each request of a session has a number, and a repeated request changes nothing.
Rule 5: beyond 10,000 sessions, the queue forgets those that have been idle for longest, but no session that
        holds items or waits. If a forgotten session repeats a request, the queue takes it for a new request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launchpad.queues.packing import Item, unpack
from launchpad.services.requests import Conversation

# The largest total size, in bytes, of the items taken at once. A larger item is taken alone.
_MAX_BYTES = 4 << 20
_MAX_REPORTS = 1000
_MAX_REPORT_BYTES = 64 << 20
_MOST_SESSIONS = 10_000

Numbered = tuple[int, Item]
Reply = tuple[str, Any]

OK = "ok"
FULL = "full"
EMPTY = "empty"
CANCELLED = "cancelled"
CLOSED = "closed"
ENDED = "ended"


class QueueSession(Conversation[Reply]):
    """The queue's view of a consumer's or producer's thread.

    Attributes:
        worker, attempt: The worker, and the attempt of it, that the session belongs to. The attempt is 0 for
            a process that is not a worker.
        accepted: The number of items in the session's last request that the queue has accepted.
        in_hand: The items that the session has taken and not acknowledged.
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
    """A report about a consumer that ended while it held items. It may have handled them.

    Example:
        for report in queue.reports():
            print(report.consumer, report.numbers, report.items)

    Attributes:
        consumer, attempt: The worker, and the number of the attempt that ended.
        numbers: The items' numbers. The queue counts items from 1, in the order in which they were put.
        is_lost: True if the items are not redelivered, because the queue has `redeliver=False`.
        packed: The items as the queue keeps them. If the reports together hold too many bytes, older reports
            lose their items, and this is empty.
    """

    consumer: str
    attempt: int
    numbers: tuple[int, ...]
    is_lost: bool
    packed: tuple[Item, ...] = field(repr=False, default=())

    @property
    def items(self) -> list[Any]:
        """The items, unpacked. Their classes must be importable here."""
        return [unpack(item) for item in self.packed]

    def __str__(self) -> str:
        first = self.numbers[0]
        last = self.numbers[-1]
        numbers = f"number {first}" if first == last else f"numbers {first} to {last}"
        again = "not delivered again (redeliver=False)" if self.is_lost else "delivered again"
        return (
            f"{self.consumer} (attempt {self.attempt}) ended with {len(self.numbers)} items in hand,"
            f" {numbers}, which it may have handled: {again}"
        )


@dataclass(frozen=True)
class QueueStats:
    """The counts of a queue, as `queue.stats()` returns them.

    At any moment, and whichever workers die, each count on the left is the sum on the right:

        put                              waiting + in_hand + handled + lost + dropped
        taken                            in_hand + handled + lost + returned + redelivered

    Example:
        stats = queue.stats()
        print(f"{stats.waiting} wait, {stats.handled} of {stats.put} are handled")

    Attributes:
        put: Items that the queue has accepted.
        taken: Items given to consumers. An item that went back and was given again counts again.
        waiting: Items that wait, including those that went back.
        in_hand: Items that a consumer holds and has not acknowledged.
        handled: Items that a consumer has handled, that is, acknowledged.
        returned: Items that went back because their consumer had fetched them ahead, but had not begun them.
        redelivered: Items that went back because their consumer died. They may be handled twice.
        lost: Items that were not redelivered after their consumer died, because of `redeliver=False`.
        dropped: Items that waited when the queue was cancelled, or that went back after that.
        most_waiting: The largest number of items that waited at one time, without those that went back.
        closed: The names of the producers that have closed.
        is_cancelled: True if a consumer has cancelled the queue.
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
        maxsize: The largest number of waiting items.
        producers: The number of workers that put items. With None, only `cancel` ends the queue.
        redeliver: True if an item may be delivered again after its consumer has died.
    """

    def __init__(self, maxsize: int, producers: int | None, redeliver: bool) -> None:
        self.maxsize = maxsize
        self.producers = producers
        self.redeliver = redeliver
        # The session with the latest request is at the end.
        self.sessions: dict[str, QueueSession] = {}
        self._forgets_at = _MOST_SESSIONS
        self.is_cancelled = False
        self.reports: deque[QueueReport] = deque(maxlen=_MAX_REPORTS)
        self._waiting: deque[Numbered] = deque()
        self._returned: deque[Numbered] = deque()
        # Maps each producer to its attempt.
        self._open: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        # Maps each worker to its last attempt that has ended.
        self._ended: dict[str, int] = {}
        self._put = 0
        self._taken = 0
        self._handled = 0
        self._n_returned = 0
        self._redelivered = 0
        self._lost = 0
        self._dropped = 0
        self._most_waiting = 0

    @property
    def n_waiting(self) -> int:
        return len(self._waiting) + len(self._returned)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < self.maxsize

    def session(self, key: str, worker: str, attempt: int) -> QueueSession | None:
        """Return the session with this key, or make it.

        Return None if it would be new, but this attempt of the worker has ended.
        """
        session = self.sessions.pop(key, None)
        if session is None:
            if 0 < attempt <= self._ended.get(worker, 0):
                return None
            session = QueueSession(worker, attempt)
        self.sessions[key] = session
        return session

    @property
    def has_room_for_sessions(self) -> bool:
        return len(self.sessions) < self._forgets_at

    def forget_sessions(self, waiting: Collection[QueueSession]) -> None:
        """Forget the sessions that have been idle for longest, down to half of the largest number.

        Sessions that hold items, and those in `waiting`, stay.
        """
        n_surplus = len(self.sessions) - _MOST_SESSIONS // 2
        idle = [
            key
            for key, session in self.sessions.items()
            if not session.in_hand and session not in waiting
        ]
        for key in idle[: max(0, n_surplus)]:
            del self.sessions[key]
        # If most sessions are not idle, don't search them again at each request.
        self._forgets_at = max(_MOST_SESSIONS, 2 * len(self.sessions))

    def register(self, worker: str, attempt: int) -> bool:
        """Register a worker as a producer. False if it has closed, but a later attempt opens it again."""
        if worker in self._closed:
            if not attempt > self._closed[worker]:
                return False
            del self._closed[worker]
        self._open[worker] = max(attempt, self._open.get(worker, 0))
        return True

    def put(self, session: QueueSession, items: Sequence[Item]) -> int:
        """Accept as many items as there is room for, and return how many."""
        n = min(len(items), self.maxsize - len(self._waiting))
        numbers = range(self._put + 1, self._put + n + 1)
        self._waiting.extend(zip(numbers, items if n == len(items) else items[:n], strict=True))
        session.accepted += n
        self._put += n
        self._most_waiting = max(self._most_waiting, len(self._waiting))
        return n

    def take(self, session: QueueSession, n: int) -> list[Item]:
        """Give a session up to n items from the front. If they are large, give it fewer."""
        numbered_items: list[Numbered] = []
        size = 0
        for source in (self._returned, self._waiting):
            while source and len(numbered_items) < n and size < _MAX_BYTES:
                numbered = source.popleft()
                numbered_items.append(numbered)
                size += len(numbered[1])
        session.in_hand += numbered_items
        self._taken += len(numbered_items)
        return [item for _, item in numbered_items]

    def settle(self, session: QueueSession, handled: int, kept: int) -> None:
        """Settle the items that a session holds, from the first one on.

        The first `handled` of them are handled, the next `kept` stay in hand, and the rest go back.
        """
        in_hand = session.in_hand
        self._handled += min(handled, len(in_hand))
        session.in_hand = in_hand[handled : handled + kept]
        self._n_returned += len(in_hand[handled + kept :])
        self._put_back(in_hand[handled + kept :])

    def end(self, worker: str, attempt: int, *, is_well: bool) -> list[QueueReport]:
        """End this attempt of a worker and all earlier ones, and put back the items that they held.

        `is_well` is True if this attempt succeeded. In this case, it has handled all items that it took.
        Return a report for each session whose items may have been handled.
        """
        self._ended[worker] = max(attempt, self._ended.get(worker, 0))
        reports: list[QueueReport] = []
        for key, session in [*self.sessions.items()]:
            if session.worker != worker or not 0 < session.attempt <= attempt:
                continue
            del self.sessions[key]
            if is_well and session.attempt == attempt:
                self.settle(session, len(session.in_hand), 0)
            elif session.in_hand:
                reports.append(self._report(session))
        return reports

    def end_all(self) -> list[QueueReport]:
        """Prepare the contents for a new launch, in which no earlier session or producer exists any more."""
        reports = [self._report(session) for session in self.sessions.values() if session.in_hand]
        self.sessions = {}
        self._open = {}
        self._closed = {}
        self._ended = {}
        self.is_cancelled = False
        return reports

    def close(self, worker: str, attempt: int) -> None:
        """Close the queue for a producer, unless a later attempt of it has opened it already."""
        if attempt < max(self._open.get(worker, 0), self._closed.get(worker, 0)):
            return
        self._open.pop(worker, None)
        self._closed[worker] = attempt

    def reopen(self, worker: str, attempt: int) -> None:
        """Reopen a producer that has closed, because this attempt is followed by another one."""
        if 0 < self._closed.get(worker, 0) <= attempt:
            del self._closed[worker]
            self._open[worker] = attempt + 1

    def is_open(self, worker: str) -> bool:
        """Return True if this worker is a producer that has not closed."""
        return worker in self._open

    @property
    def producers_that_have_come(self) -> list[str]:
        """The names of all producers that have put something or registered, even if they have closed."""
        return sorted({*self._open, *self._closed})

    @property
    def is_endless(self) -> bool:
        """True if all producers so far have closed, but the queue doesn't know whether more will come."""
        return self.producers is None and bool(self._closed) and not self._open

    def cancel(self) -> None:
        """Drop the waiting items; the queue gives and accepts no more."""
        self.is_cancelled = True
        self._dropped += self.n_waiting
        self._waiting.clear()
        self._returned.clear()

    def is_over(self, session: QueueSession) -> bool:
        """Return True if no more items will come for this consumer.

        Items that others hold, and have not acknowledged, may still come back. The others are other workers,
        and an earlier attempt of this worker whose end the supervisor has not reported yet. A consumer that
        holds items itself doesn't wait for those of others, because two consumers could then wait for each
        other.
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
                other.in_hand and other.attempt and (other.worker, other.attempt) != own
                for other in self.sessions.values()
            )
        )

    def stats(self) -> QueueStats:
        return QueueStats(
            put=self._put,
            taken=self._taken,
            waiting=self.n_waiting,
            in_hand=sum(len(session.in_hand) for session in self.sessions.values()),
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
        elif items:
            # All numbers are different, so the sort never compares the items themselves.
            self._returned = deque(sorted([*self._returned, *items]))

    def _report(self, session: QueueSession) -> QueueReport:
        items = session.in_hand
        session.in_hand = []
        numbers, packed = zip(*items, strict=True)
        report = QueueReport(
            session.worker, session.attempt, numbers, not self.redeliver, tuple(packed)
        )
        self.reports.append(report)
        bytes_left = _MAX_REPORT_BYTES
        # Only the latest reports keep their items.
        for number in reversed(range(len(self.reports))):
            bytes_left -= sum(map(len, self.reports[number].packed))
            if bytes_left < 0:
                self.reports[number] = replace(self.reports[number], packed=())
        if self.redeliver:
            self._redelivered += len(items)
            self._put_back(items)
        else:
            self._lost += len(items)
        return report
