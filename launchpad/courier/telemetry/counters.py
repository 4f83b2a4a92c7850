"""What is counted of every call, at both ends, always.

No lock: CPython changes threads between calls and at the ends of loops, never within
`number += number` or `numbers[i] += 1`, so that none of these gets lost. Do not call anything on the
right-hand side.

Here is also `warn`, by which courier logs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

N_BUCKETS = 48  # the last one begins at 2**46 µs, two years: no call is too long for it
UNKNOWN = b"(unknown)"


@dataclass(slots=True, eq=False)
class MethodCounts:
    """The calls of one method between one client and one server.

    `buckets[i]` counts calls that took from 2**(i-1) to 2**i µs. A call with streams counts when it
    is answered; then `items` and their bytes, as they pass.
    """

    started: int = 0
    errors: int = 0
    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    total_s: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * N_BUCKETS)

    def add(self, other: MethodCounts) -> None:
        """Adds those of another; in the order in which `call_stats.of` reads them, since calls may go on."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.bytes_in, self.bytes_out = (
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
        )
        self.total_s, self.errors = self.total_s + other.total_s, self.errors + other.errors
        self.started, self.items = self.started + other.started, self.items + other.items

    def finish(self, took_s: float, bytes_in: int, bytes_out: int) -> None:
        """One call more has ended, well or not.

        A function call would cost as much again, so hot paths have copies of this, marked INLINE.
        """
        bucket = int(took_s * 1e6).bit_length()
        self.total_s += took_s
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.buckets[bucket] += 1


class Counts(dict[bytes, MethodCounts]):
    """By method, made when first asked for.

    Args:
        is_known: whether there is such a method. Those that are not are counted together, since
            a client may ask for any number of them; so are those beyond `MAX_METHODS`, where a
            fallback knows any name.
    """

    MAX_METHODS = 1000

    def __init__(self, is_known: Callable[[bytes], bool] = lambda method: True) -> None:
        super().__init__()
        self._is_known = is_known
        self.log: list[tuple[bytes, MethodCounts]] = []
        """All that is in here, for the registry: it may be read when this object is gone."""

    def __missing__(self, method: bytes) -> MethodCounts:
        is_own = len(self) < self.MAX_METHODS and self._is_known(method)
        name, new = method if is_own else UNKNOWN, MethodCounts()
        counts = self.setdefault(name, new)
        if counts is new:
            self.log.append((name, new))
        return counts


class EdgeCounts(dict[str, Counts]):
    """A server's counts, by the name of the client.

    Clients that come and go under ever new names are counted together beyond `MAX_PEERS`.
    """

    MAX_PEERS = 1000

    def __init__(self, is_known: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._is_known = is_known
        self.log: list[tuple[str, list[tuple[bytes, MethodCounts]]]] = []
        """As that of `Counts`, by client."""

    def of(self, peer: str) -> Counts:
        name = peer if peer in self or len(self) < self.MAX_PEERS else "(others)"
        new = Counts(self._is_known)
        counts = self.setdefault(name, new)
        if counts is new:
            self.log.append((name, new.log))
        return counts


def warn(text: str) -> None:
    """A warning on stderr, unless the program handles this logger otherwise."""
    try:
        import logging
    except OSError:  # out of descriptors, which may be what the warning is about
        print(text, file=sys.stderr)
        return
    logging.getLogger("launchpad.courier").warning(text)
