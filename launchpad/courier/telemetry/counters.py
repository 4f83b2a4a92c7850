"""Counters of every call, at both ends. They are always on.

There is no lock. CPython switches threads between calls and at the ends of loops, never within
`number += number` or `numbers[i] += 1`, so no count gets lost. For this reason, do not call anything on the
right-hand side.

This file also has `warn`, which courier uses to log warnings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

N_BUCKETS = 48  # the last one begins at 2**46 µs, two years: no call is too long for it
UNKNOWN = b"(unknown)"


@dataclass(slots=True, eq=False)
class MethodCounts:
    """Counters for the calls of one method between one client and one server.

    `buckets[i]` counts calls that took from 2**(i-1) to 2**i µs. A call with streams counts as ended when it
    is answered. After that, `items` and their bytes are counted as they pass.
    """

    started: int = 0
    errors: int = 0
    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    total_s: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * N_BUCKETS)

    def add(self, other: MethodCounts) -> None:
        """Add the counts of `other`. Calls may go on, so keep the order in which `call_stats.of` reads."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.bytes_in = self.bytes_in + other.bytes_in
        self.bytes_out = self.bytes_out + other.bytes_out
        self.total_s = self.total_s + other.total_s
        self.errors = self.errors + other.errors
        self.started = self.started + other.started
        self.items = self.items + other.items

    def finish(self, took_s: float, bytes_in: int, bytes_out: int) -> None:
        """Count a call that has ended, with or without an error.

        Calling this function costs as much again as its body, so hot paths have copies of it, marked INLINE.
        """
        bucket = int(took_s * 1e6).bit_length()
        self.total_s += took_s
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.buckets[bucket] += 1


class Counts(dict[bytes, MethodCounts]):
    """A dict from method name to its counters, which are created on first access.

    Args:
        is_known: A function that returns True if there is a method of this name. All unknown methods share
            one counter, because a client may ask for any number of names. Methods beyond `MAX_METHODS` share
            it too, because a server with a fallback knows every name.
    """

    MAX_METHODS = 1000

    def __init__(self, is_known: Callable[[bytes], bool] = lambda method: True) -> None:
        super().__init__()
        self._is_known = is_known
        self.log: list[tuple[bytes, MethodCounts]] = []
        """All entries of this dict. The registry reads them even after this object is gone."""

    def __missing__(self, method: bytes) -> MethodCounts:
        is_own = len(self) < self.MAX_METHODS and self._is_known(method)
        name = method if is_own else UNKNOWN
        new = MethodCounts()
        counts = self.setdefault(name, new)
        if counts is new:
            self.log.append((name, new))
        return counts


class EdgeCounts(dict[str, Counts]):
    """A dict from client name to a server's counts for it.

    Clients beyond the first `MAX_PEERS` names share one entry, because ever new clients may call a server.
    """

    MAX_PEERS = 1000

    def __init__(self, is_known: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._is_known = is_known
        self.log: list[tuple[str, list[tuple[bytes, MethodCounts]]]] = []
        """All entries, by client, for the registry, as in `Counts`."""

    def of(self, peer: str) -> Counts:
        name = peer if peer in self or len(self) < self.MAX_PEERS else "(others)"
        new = Counts(self._is_known)
        counts = self.setdefault(name, new)
        if counts is new:
            self.log.append((name, new.log))
        return counts
