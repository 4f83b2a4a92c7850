"""Constructors that wait for each other: found while they do."""

from __future__ import annotations

from collections.abc import Mapping

from launchpad import outcome
from launchpad.launch.watched import State, Watched
from launchpad.outcome import Outcome

_STALE_WAIT_S = 2.5
"""A constructor that waits says so every second; one that has fallen silent waits no more."""


def find_ring(workers: Mapping[str, Watched], start: str, now: float) -> list[str]:
    """The workers whose constructors wait for each other in a ring through `start`; none, as a rule."""
    came_from = {start: ""}
    to_visit = [start]
    while to_visit:
        name = to_visit.pop()
        for other in _waited_for(workers, name, now):
            if other == start:
                return _path_to(name, came_from)
            if other not in came_from:
                came_from[other] = name
                to_visit.append(other)
    return []


def deadlock(ring: list[str], worker: Watched) -> Outcome:
    """The failure that a ring is."""
    return Outcome(
        worker=worker.name,
        kind=outcome.FAILED,
        phase="init",
        attempt=worker.attempt,
        cause=f"constructors wait for each other: {' → '.join([*ring, ring[0]])}",
        error_type="deadlock",
        hung=True,
        hint="make one of these calls in run(), or at the first use, not in the constructor",
    )


def _waited_for(workers: Mapping[str, Watched], name: str, now: float) -> list[str]:
    """Whom a worker that is being built waits for."""
    worker = workers.get(name)
    if worker is None or worker.state is not State.STARTING:
        return []
    return [other for other, said in worker.waits_for.items() if now - said < _STALE_WAIT_S]


def _path_to(name: str, came_from: Mapping[str, str]) -> list[str]:
    path = []
    while name:
        path.append(name)
        name = came_from[name]
    return path[::-1]
