"""BytePS's order of gradients: those of the first layers overtake others, so that forward needn't wait.

    backward   layer 2 ─── layer 1 ─── layer 0      forward   layer 0 ─── layer 1 ─── layer 2
                  ▼           ▼           ▼                      ▲           ▲           ▲
    queue      partitions, those of layer 0 first ──▶ servers ───┴─── sums ──┴───────────┘

Backward makes the gradient of layer 0 last, and the next forward needs its sum first: it overtakes.
"""

import heapq
import threading
from collections.abc import Callable, Iterable, Sequence

from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.byteps.placement import Partition

Event = tuple[str, Partition]


class SendQueue:
    """A queue that sends partitions, the first layer's before all others, with a limit on bytes under way.

    A partition's credit comes back when the server has the partition, not when its sum is there. Otherwise
    two workers that send different partitions first would wait for each other forever.

    Args:
        send: Begins to send a partition. Its owner calls `arrived` when the server has the partition.
        credit: How many bytes may be under way; one partition always may.
        by_priority: True if the first layer goes first. Else partitions go in the order of their `put`.

    Attributes:
        events: The events of partitions, in order: ready, sent, arrived.
    """

    def __init__(
        self, send: Callable[[Partition], None], credit: int, by_priority: bool = True
    ) -> None:
        self.events: list[Event] = []
        self._send = send
        self._credit = credit
        self._by_priority = by_priority
        self._ready: list[tuple[int, int, Partition]] = []
        self._bytes_under_way = 0
        self._lock = threading.Lock()

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


def train_step(
    widths: Sequence[int],
    layers: Sequence[Array],
    digits: Data,
    before: Callable[[int], None],
    send: Callable[[int, Array], None],
) -> None:
    """Go forward and back through a network.

    Args:
        widths, layers: The network, and the parameters of each of its layers.
        digits: The batch.
        before: Called with each layer's number before the layer is used; it gets the layer's sum and updates
            it.
        send: Called with each layer's number and gradient as soon as backward has made it.
    """
    values = [digits.inputs]
    for i, layer in enumerate(layers):
        before(i)
        is_last = i + 1 == len(layers)
        values += networks.forward(widths[i : i + 2], layer.ravel(), values[-1], is_last)[1:]
    _, gradient = networks.cross_entropy(values[-1], digits)
    for i in reversed(range(len(layers))):
        part = widths[i : i + 2], layers[i].ravel(), values[i : i + 2]
        gradient, of_layer = networks.backward(*part, gradient, i + 1 == len(layers))
        send(i, of_layer)
