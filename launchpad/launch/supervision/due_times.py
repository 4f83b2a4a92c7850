"""Times at which items are due, when there are very many items and their times change all the time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)


class DueTimes(Generic[_T]):
    """A priority queue of items. An item's time is looked up again when it seems to be due.

    So nothing has to be done when an item's time moves to later, or goes away.

    Args:
        due_at: Returns when an item is due; None if it never is.
    """

    def __init__(self, due_at: Callable[[_T], float | None]) -> None:
        self._due_at = due_at
        self._numbers = itertools.count()
        self._queue: list[tuple[float, int, _T]] = []
        # Item → the time with which it is in the queue. Other entries of the item are out of date.
        self._queued: dict[_T, float] = {}

    def update(self, item: _T) -> None:
        """Take note that an item is new, or that its time may have moved to earlier."""
        at = self._due_at(item)
        if at is not None and at < self._queued.get(item, math.inf):
            self._queued[item] = at
            heapq.heappush(self._queue, (at, next(self._numbers), item))

    def next_at(self) -> float | None:
        """Return when the next item is due; None if no item will be."""
        while self._queue:
            at, _, item = self._queue[0]
            if self._queued.get(item) == at:
                if self._due_at(item) == at:
                    return at
                del self._queued[item]
                heapq.heappop(self._queue)
                self.update(item)
            else:
                heapq.heappop(self._queue)
        return None

    def take(self, now: float) -> list[_T]:
        """Remove the items that are due by now, and return them. `update` puts an item in again."""
        items = []
        next_at = self.next_at()
        while next_at is not None and next_at <= now:
            _, _, item = heapq.heappop(self._queue)
            del self._queued[item]
            items.append(item)
            next_at = self.next_at()
        return items
