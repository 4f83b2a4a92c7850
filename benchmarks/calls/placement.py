"""On which cores client and server run.

one core    both processes pinned to the same one: what the code costs
two cores   each pinned to its own: what the kernel needs to wake the other one up
unpinned    what you get when you just run it; the scheduler goes back and forth between the
            two above, for each contender as it likes, and the figures follow it
"""

from __future__ import annotations

import os

Cores = tuple[set[int], set[int]]
UNPINNED = "unpinned"


def placements() -> dict[str, Cores]:
    """Where client and server run, by name."""
    everywhere = os.sched_getaffinity(0)
    first, *others = sorted(everywhere)
    pinned: dict[str, Cores] = {"one core": ({first}, {first})}
    if others:
        pinned["two cores"] = ({first}, {others[0]})
    return {UNPINNED: (everywhere, everywhere)} | pinned


def unpinned() -> dict[str, Cores]:
    """Only that."""
    return {UNPINNED: placements()[UNPINNED]}
