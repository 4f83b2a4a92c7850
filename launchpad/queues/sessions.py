"""What a thread is to a queue: requests with numbers, so that one can be repeated, and items in its hands."""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Any

from launchpad.queues.packing import Item, unpack
from launchpad.services.requests import ClientSession

MOST = 1024
"""Items of one call."""

_QUICK_S, _SLOW_S, _LONG_S = 0.005, 0.02, 0.05
"""A chunk that is handled within that may grow, is too large, or is taken back in parts."""


class QueueClientSession(ClientSession):
    """A conversation with the queue of this id, one request after the other."""

    def __init__(self, queue_id: str) -> None:
        super().__init__()
        self.queue_id = queue_id


class ConsumerSession(QueueClientSession):
    """One of a thread that takes items, with those that it has in hand. A forked child has none in hand.

    Attributes:
        chunk: Those that its thread has not got yet.
        given: How many its thread has got that are not acknowledged.
        unsettled: How many of those are handled, and how many are kept, as long as the queue has not said
            that it knows.
        size: How large the next chunk may be.
        since: When this one arrived.
    """

    chunk: deque[Item]
    given: int
    unsettled: tuple[int, int] | None

    def __init__(self, queue_id: str) -> None:
        super().__init__(queue_id)
        self.size = 1
        self.since = 0.0

    def renew(self) -> None:
        super().renew()
        self.chunk = deque()
        self.given = 0
        self.unsettled = None

    @property
    def is_long(self) -> bool:
        """Whether this chunk takes so long that the rest of it is better given back."""
        return time.monotonic() - self.since > _LONG_S

    def next(self) -> Any:
        self.given += 1
        return unpack(self.chunk.popleft())

    def next_many(self, n: int) -> list[Any]:
        """Up to n; those before one that cannot be unpacked, which raises when it is the first."""
        found: list[Any] = []
        for item in itertools.islice(self.chunk, n):
            try:
                found.append(unpack(item))
            except Exception:
                if not found:
                    self.given += 1
                    self.chunk.popleft()
                    raise
                break
        self.given += len(found)
        for _ in found:
            self.chunk.popleft()
        return found

    def resize(self) -> None:
        """The chunk is finished, or took too long: the next one is such that it takes some milliseconds."""
        took_s = time.monotonic() - self.since
        if took_s < _QUICK_S and self.given >= self.size:
            self.size = min(4 * self.size, MOST)
        elif took_s > _SLOW_S and self.given:
            self.size = max(1, min(self.size, int(self.given * _SLOW_S / took_s)))
