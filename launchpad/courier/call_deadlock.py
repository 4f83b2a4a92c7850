"""Detection of calls that wait for each other in a circle: A.f → B.g → A.f.

Each server can report which calls its methods wait for (call_stack.py). A thread that has waited for a long
time asks the server that it waits for, then the servers that this server waits for, and so on, until a path
leads back. (This is the method of Chandy, Misra and Haas, 1983, but they send probes where this module
fetches edges.)
"""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.courier import fork, log
from launchpad.courier.call_stack import Awaited, Edge, Place, Wait
from launchpad.courier.interruptions import Lock

_MAX_SERVERS = 64

# The thread that looks for circles holds this lock. Only one thread looks at a time.
_is_detecting = fork.free_in_child(Lock())
_reported: set[frozenset[str]] = set()


def detect(waits: Sequence[Wait]) -> bool:
    """Look for a circle that includes one of these waits. Log a warning once per circle.

    Return False if another thread is already looking. If many threads looked at once, their requests would
    slow each other down.
    """
    if not _is_detecting.acquire(blocking=False):
        return False
    try:
        fetcher = _EdgeFetcher([peer for _, peer in waits])
        paths = (_find_path(edge, edge[0], fetcher, set()) for edge in dict(waits))
        path = next(filter(None, paths), None)
        if path:
            calls = [f"{edge[2]}.{edge[0][1]}" for edge in (*path, path[0])]
            if frozenset(calls) not in _reported:
                _reported.add(frozenset(calls))
                log.warning(
                    f"these calls wait for each other: {' → '.join(calls)}. A recursion that ends "
                    "is answered; one that does not, or calls of which each holds what another one needs, "
                    "never are. "
                    "Call with futures and do not wait, or set a call_timeout."
                )
    finally:
        _is_detecting.release()
    return True


def _find_path(edge: Edge, to: Place, fetcher: _EdgeFetcher, visited: set[Place]) -> list[Edge]:
    """Return a path that begins with `edge` and leads to `to`, found depth first, or an empty list."""
    if edge[1] == to:
        return [edge]
    if edge[1] in visited:
        return []
    visited.add(edge[1])
    for next_edge in fetcher.edges_from(edge[1]):
        path = _find_path(next_edge, to, fetcher, visited)
        if path:
            return [edge, *path]
    return []


class _EdgeFetcher:
    """A cache of servers' edges. It asks each server only once, with the token of the client that waits."""

    def __init__(self, peers: Sequence[Awaited]) -> None:
        self._peers = {peer.address: peer for peer in peers}
        self._known: dict[str, list[Edge]] = {}

    def edges_from(self, place: Place) -> list[Edge]:
        address = place[0]
        if address not in self._known and len(self._known) < _MAX_SERVERS:
            peer = self._peers.get(address)
            token = None if peer is None else peer.own_token
            fetch = next(iter(self._peers.values())).fetch_waits
            try:
                fetched = fetch(address, token)
                self._known[address] = [edge for edge in fetched if edge[0][0] == address]
            except Exception:  # the server is down or refuses the request: no path leads through it
                self._known[address] = []
        return [edge for edge in self._known.get(address, []) if edge[0] == place]
