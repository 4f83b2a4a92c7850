"""The deadlines of the calls in flight, the first one first."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Collection

_SLACK = 1000  # entries of calls that are done by now, before anybody sweeps


class Deadlines:
    """When each call is late. Calls that are done are forgotten now and then. Safe from any thread.

    Args:
        open_calls: the ids of the calls that are not done.
    """

    def __init__(self, open_calls: Collection[int]) -> None:
        self._open = open_calls
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, call_id: int) -> bool:
        """True if it is the first one now."""
        entry = (deadline, call_id)
        with self._lock:
            heapq.heappush(self._heap, entry)
            if len(self._heap) > 2 * len(self._open) + _SLACK:
                self._heap = [each for each in self._heap if each[1] in self._open]
                heapq.heapify(self._heap)
            return self._heap[0] is entry

    def first(self) -> float | None:
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def take_late(self, now: float) -> list[int]:
        """The ids of the calls whose time has come."""
        late = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                late.append(heapq.heappop(self._heap)[1])
        return late
