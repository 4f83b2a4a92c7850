"""What a thread is to a queue: requests with numbers, so that one can be repeated, and items in its hands."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from launchpad.queues.packing import Item, unpack

MOST = 1024
"""Items of one call."""

_QUICK_S, _SLOW_S, _LONG_S = 0.005, 0.02, 0.05
"""A chunk that is handled within that may grow, is too large, or is taken back in parts."""


@dataclass
class ClientSession:
    """A conversation with the queue of this id, one request after the other.

    Attributes:
        number: Of the next request, or of the last one, as long as that is not answered.
    """

    queue_id: str
    key: str = field(default_factory=lambda: os.urandom(12).hex())
    number: int = 1


@dataclass
class ConsumerSession(ClientSession):
    """One of a thread that takes items, with those that it has in hand.

    Attributes:
        chunk: Those that its thread has not got yet.
        given: How many its thread has got that are not acknowledged.
        unsettled: How many of those are handled, and how many are kept, as long as the queue has not said
            that it knows.
        size: How large the next chunk may be.
        since: When this one arrived.
    """

    chunk: deque[Item] = field(default_factory=deque)
    given: int = 0
    unsettled: tuple[int, int] | None = None
    size: int = 1
    since: float = 0.0

    def renew(self) -> None:
        """Becomes one that has nothing in hand, for a forked child: a loop may go on with it there."""
        self.key = ClientSession(self.queue_id).key
        self.number = 1
        self.chunk.clear()
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
