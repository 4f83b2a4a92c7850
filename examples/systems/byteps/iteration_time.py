"""The logical time of an iteration, in which only layers and partitions take time.

The forward of a layer takes 1, and so does its backward. A partition of 4 MB takes 1 on the link, and a
smaller one proportionally less. Partitions follow each other on the link. The next forward of a layer begins
when all partitions of the layer have arrived. No clock is read, so the answer is exact, and the same on a
busy machine.
"""

import heapq
from collections.abc import Sequence
from fractions import Fraction

from examples.systems.byteps.algorithm import SendQueue
from examples.systems.byteps.placement import PARTITION_BYTES, Partition


def iteration_time(
    layers: Sequence[Sequence[Partition]], credit: int, by_priority: bool
) -> Fraction:
    """Return how long a backward and the forward after it take, with these partitions of each layer."""
    arrivals: list[tuple[Fraction, int, Partition]] = []
    now = Fraction(0)
    free_at = Fraction(0)
    done_at = [Fraction(0)] * len(layers)

    def send(partition: Partition) -> None:
        nonlocal free_at
        free_at = max(free_at, now) + Fraction(partition.n_bytes, PARTITION_BYTES)
        heapq.heappush(arrivals, (free_at, len(arrivals), partition))

    queue = SendQueue(send, credit, by_priority)

    def let_arrive(until: Fraction | float) -> None:
        nonlocal now
        while arrivals and arrivals[0][0] <= until:
            now, _, partition = heapq.heappop(arrivals)
            done_at[partition.layer] = now
            queue.arrived(partition)

    for made_at, partitions in enumerate(reversed(layers), start=1):
        let_arrive(made_at)
        now = Fraction(made_at)
        queue.put(partitions)
    let_arrive(float("inf"))
    clock = Fraction(len(layers))
    for each in done_at:
        clock = max(clock, each) + 1
    return clock
