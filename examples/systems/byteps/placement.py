"""The placement of gradients: each server's share of them, and the pieces in which they travel."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PARTITION_BYTES = 4_096_000
NUMBER_BYTES = 8


def placement(n: int, k: int) -> list[float]:
    """Return the share of each server: first of those beside the n workers, then of k spare machines.

    With these shares each machine's link carries the same, and the least possible: see README.md.
    """
    if k >= n:
        return [0.0] * n + [1 / k] * k
    total = n * n + k * n - 2 * k
    return [(n - k) / total] * n + [2 * (n - 1) / total] * k


class Partition(NamedTuple):
    """A piece of a layer's flat gradient, and the server that adds it up."""

    layer: int
    server: int
    begin: int
    end: int

    @property
    def n_bytes(self) -> int:
        return (self.end - self.begin) * NUMBER_BYTES


def cut(layer_sizes: Iterable[int], shares: Sequence[float]) -> list[list[Partition]]:
    """Return the partitions of each layer: every server's share of it, in pieces of at most 4 MB."""
    longest = PARTITION_BYTES // NUMBER_BYTES
    layers: list[list[Partition]] = []
    for layer, size in enumerate(layer_sizes):
        layers.append([])
        ends = [0, *(round(size * share) for share in itertools.accumulate(shares))]
        for server, (first, end) in enumerate(itertools.pairwise(ends)):
            for begin in range(first, end, longest):
                layers[-1].append(Partition(layer, server, begin, min(begin + longest, end)))
    return layers
