"""Rings of calls that wait for each other: A.f → B.g → A.f.

Each server can say, when asked, which of its methods wait for what (call_stack.py). A thread that has waited
for long asks the server that it waits for, then those which that one waits for, and so on, until a way leads
back. (Chandy, Misra and Haas 1983, with the edges fetched in place of probes sent.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from launchpad.courier.call_stack import Awaited, Edge, Place, Wait
from launchpad.courier.telemetry.counters import warn

_MAX_SERVERS = 64

_is_detecting = threading.Lock()
_reported: set[frozenset[str]] = set()


def detect(waits: Sequence[Wait]) -> bool:
    """Looks for a ring that one of these is part of, and warns if there is one, of each ring once.

    False when another thread is looking already: where many wait, they would keep each other from being
    answered.
    """
    if not _is_detecting.acquire(blocking=False):
        return False
    try:
        fetcher = _EdgeFetcher([peer for _, peer in waits])
        cycles = (_search(edge, fetcher) for edge in dict(waits))
        cycle = next(filter(None, cycles), [])
        if cycle and frozenset(cycle) not in _reported:
            _reported.add(frozenset(cycle))
            warn(
                f"these calls wait for each other, and none will ever be answered: {' → '.join(cycle)}. "
                "Call with futures and do not wait, or set a call_timeout."
            )
    finally:
        _is_detecting.release()
    return True


def _search(start: Edge, fetcher: _EdgeFetcher) -> list[str]:
    """Depth first from where `start` leads, until a way leads back to where it began.

    The ring as `server.method`, or empty.
    """
    trail = [start]
    seen: set[Place] = set()

    def follow(edge: Edge) -> bool:
        if edge[1] == start[0]:
            return True
        if edge[1] in seen:
            return False
        seen.add(edge[1])
        for each in fetcher.edges_from(edge[1]):
            trail.append(each)
            if follow(each):
                return True
            trail.pop()
        return False

    if not follow(start):
        return []
    return [*(f"{edge[2]}.{edge[0][1]}" for edge in trail), f"{start[2]}.{start[0][1]}"]


class _EdgeFetcher:
    """Asks servers for their edges, each once, in the way of the clients that wait."""

    def __init__(self, peers: Sequence[Awaited]) -> None:
        self._peers = {peer.address: peer for peer in peers}
        self._known: dict[str, list[Edge]] = {}

    def edges_from(self, place: Place) -> list[Edge]:
        address = place[0]
        if address not in self._known and len(self._known) < _MAX_SERVERS:
            self._known[address] = self._fetch(address)
        return [edge for edge in self._known.get(address, []) if edge[0] == place]

    def _fetch(self, address: str) -> list[Edge]:
        peer = self._peers.get(address)
        token = None if peer is None else peer.own_token
        fetch = next(iter(self._peers.values())).fetch_waits
        try:
            return [edge for edge in fetch(address, token) if edge[0][0] == address]
        except Exception:  # not there, or not willing: no ring is found through it
            return []
