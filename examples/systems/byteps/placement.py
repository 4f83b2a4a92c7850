"""Which server adds up which part of the gradients, and in which pieces these travel."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

PARTITION_BYTES = 4_096_000


def placement(n: int, k: int) -> list[float]:
    """Return the share of each server: those beside the n workers, then those of k spare machines.

    With these, what goes over each machine's link is the same, and the least possible: see README.md.
    """
    if k >= n:
        return [0.0] * n + [1 / k] * k
    whole = n * n + k * n - 2 * k
    return [(n - k) / whole] * n + [2 * (n - 1) / whole] * k


def traffic(n: int, shares: Sequence[float]) -> list[float]:
    """Return what each machine sends per byte of gradients, which is also what it gets.

    A worker sends all but what the server beside it adds up; that one sends its sums to the n - 1 others.
    """
    beside, spare = shares[:n], shares[n:]
    return [1 - share + (n - 1) * share for share in beside] + [n * share for share in spare]


class Partition(NamedTuple):
    """A piece of a layer's flat gradient, and the server that adds it up."""

    layer: int
    server: int
    begin: int
    end: int

    @property
    def n_bytes(self) -> int:
        return (self.end - self.begin) * np.dtype(np.float64).itemsize


def cut(layer_sizes: Iterable[int], shares: Sequence[float]) -> list[list[Partition]]:
    """Return the partitions of each layer: every server's share of it, in pieces of 4 MB at most."""
    longest, layers = PARTITION_BYTES // np.dtype(np.float64).itemsize, []
    for layer, size in enumerate(layer_sizes):
        ends = [round(size * share) for share in itertools.accumulate(shares)]
        layers.append(
            [
                Partition(layer, server, begin, min(begin + longest, end))
                for server, (first, end) in enumerate(itertools.pairwise([0, *ends]))
                for begin in range(first, end, longest)
            ]
        )
    return layers
