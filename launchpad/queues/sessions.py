"""Sessions of a queue's clients: numbered requests, which can be repeated, and the items in hand."""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Any

from launchpad.queues.packing import Item, unpack
from launchpad.services.requests import ClientSession

MOST = 1024
"""The largest number of items in one call."""

_QUICK_S = 0.005
_SLOW_S = 0.02
_LONG_S = 0.05
"""Limits for the time, in seconds, that a thread takes to handle a chunk.

If it takes less than `_QUICK_S`, the next chunk may be larger. If it takes more than `_SLOW_S`, the next
chunk is smaller. If it takes more than `_LONG_S`, the client gives back the rest of this chunk.
"""


class QueueClientSession(ClientSession):
    """A conversation with the queue that has this id. It sends one request after the other."""

    def __init__(self, queue_id: str) -> None:
        super().__init__()
        self.queue_id = queue_id


class ConsumerSession(QueueClientSession):
    """The session of a thread that takes items, and the items it holds. A forked child holds none.

    Attributes:
        chunk: Items that the client has fetched, but its thread has not received yet.
        given: The number of items that the thread has received, but not acknowledged.
        unsettled: The request that the queue has not confirmed, if there is one: the number of handled items,
            and the number of kept items.
        size: The largest number of items in the next chunk.
        since: The time at which the current chunk arrived.
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
        """True if this chunk takes so long that other consumers should get the rest of it."""
        return time.monotonic() - self.since > _LONG_S

    def next(self) -> Any:
        self.given += 1
        return unpack(self.chunk.popleft())

    def next_many(self, n: int) -> list[Any]:
        """Return up to n items. Stop before an item that cannot be unpacked; raise if it is the first one."""
        values: list[Any] = []
        for item in itertools.islice(self.chunk, n):
            try:
                values.append(unpack(item))
            except Exception:
                if not values:
                    self.given += 1
                    self.chunk.popleft()
                    raise
                break
        self.given += len(values)
        for _ in values:
            self.chunk.popleft()
        return values

    def resize(self) -> None:
        """Set the size of the next chunk, so that handling it takes some milliseconds.

        Call it when the current chunk is finished, or took too long.
        """
        took_s = time.monotonic() - self.since
        if took_s < _QUICK_S and self.given >= self.size:
            self.size = min(4 * self.size, MOST)
        elif took_s > _SLOW_S and self.given:
            self.size = max(1, min(self.size, int(self.given * _SLOW_S / took_s)))
