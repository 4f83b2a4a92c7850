"""BytePS's order of gradients: those of the first layers overtake others, so that forward needn't wait.

    backward   layer 2 ─── layer 1 ─── layer 0      forward   layer 0 ─── layer 1 ─── layer 2
                  ▼           ▼           ▼                      ▲           ▲           ▲
    queue      partitions, those of layer 0 first ──▶ servers ───┴─── sums ──┴───────────┘

Backward makes the gradient of layer 0 last, and the next forward needs its sum first: it overtakes.
"""

import heapq
import threading
from collections.abc import Callable, Iterable

from examples.systems.byteps.placement import Partition

Event = tuple[str, Partition | int]
"""A layer that goes "forward" or "backward", or what happens to a partition."""


class SendQueue:
    """A queue that sends partitions, the first layer's before all others, with a limit on bytes under way.

    A partition's credit comes back when the server has the partition, not when its sum is there. Otherwise
    two workers that send different partitions first would wait for each other forever.

    Args:
        send: Begins to send a partition. Its owner calls `arrived` when the server has the partition.
        credit: How many bytes may be under way; one partition always may.
        by_priority: True if the first layer goes first. Else partitions go in the order of their `put`.

    Attributes:
        events: All that happens, in order. A partition is ready, sent, arrived; then its sum has come.
    """

    def __init__(
        self, send: Callable[[Partition], None], credit: float, by_priority: bool = True
    ) -> None:
        self.events: list[Event] = []
        self._send = send
        self._credit = credit
        self._by_priority = by_priority
        self._ready: list[tuple[int, int, Partition]] = []
        self._bytes_under_way = 0
        self._lock = threading.Lock()

    def record(self, kind: str, item: Partition | int) -> None:
        with self._lock:
            self.events.append((kind, item))

    def put(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            for each in partitions:
                urgency = each.layer if self._by_priority else 0
                heapq.heappush(self._ready, (urgency, len(self.events), each))
                self.events.append(("ready", each))
        self._let_go()

    def arrived(self, partition: Partition) -> None:
        with self._lock:
            self._bytes_under_way -= partition.n_bytes
            self.events.append(("arrived", partition))
        self._let_go()

    def _let_go(self) -> None:
        while True:
            with self._lock:
                if not self._ready:
                    return
                partition = self._ready[0][-1]
                expected = self._bytes_under_way + partition.n_bytes
                if self._bytes_under_way and expected > self._credit:
                    return
                heapq.heappop(self._ready)
                self._bytes_under_way = expected
                self.events.append(("sent", partition))
            self._send(partition)
