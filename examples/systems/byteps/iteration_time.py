"""How long an iteration takes in logical time, in which nothing takes time but what is written here.

The forward and the backward of a layer take 1, a partition of 4 MB takes 1 on the link, a smaller one as much
less. Partitions follow each other on the link; the next forward of a layer begins when all of its own have
gone. No clock is read: the answer is exact, and the same on a busy machine.
"""

import heapq
from collections.abc import Sequence
from fractions import Fraction

from examples.systems.byteps.algorithm import SendQueue
from examples.systems.byteps.placement import PARTITION_BYTES, Partition


def iteration_time(
    layers: Sequence[Sequence[Partition]], credit: int, by_priority: bool
) -> Fraction:
    """Return what a backward and the forward after it take, with the partitions of each layer."""
    arrivals: list[tuple[Fraction, int, Partition]] = []
    free_at = now = Fraction(0)
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
