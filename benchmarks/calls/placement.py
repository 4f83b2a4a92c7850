"""On which cores client and server run.

one core    both processes pinned to the same one: what the code costs
two cores   each pinned to its own: what the kernel needs to wake the other one up
unpinned    what you get when you just run it: the scheduler goes back and forth between the two
            above, for each contender as it likes, and the figures follow it. Measured once after
            each of the two, so that everybody begins in the same place
"""

from __future__ import annotations

import os
from typing import NamedTuple

UNPINNED = "unpinned"


class Placement(NamedTuple):
    """Where client and server run."""

    name: str
    client: set[int]
    server: set[int]


def unpinned() -> list[Placement]:
    """Only that."""
    everywhere = os.sched_getaffinity(0)
    return [Placement(UNPINNED, everywhere, everywhere)]


def pinned() -> list[Placement]:
    """Without what the scheduler makes of it."""
    return [placement for placement in placements() if placement.name != UNPINNED]


def placements() -> list[Placement]:
    """In the order in which they are tried."""
    first, *others = sorted(os.sched_getaffinity(0))
    found = [Placement("one core", {first}, {first}), *unpinned()]
    if others:
        found += [Placement("two cores", {first}, {others[0]}), *unpinned()]
    return found
