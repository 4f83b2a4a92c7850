"""Rings of calls that wait for each other: A.f → B.g → A.f.

Nothing is noted while calls run. Which method waits for which is written on the stacks of the threads:

    Methods.answer(method=f)            A serves f …
      ⋮   the user's code
      SocketChannel.call(method=g)      … and waits for g of B

So each server can say, when asked, which of its methods wait for what. Whoever has waited for long asks
the server that it waits for, then those which that one waits for, and so on, until a way leads back.
(Chandy, Misra and Haas 1983, with the edges fetched in place of probes sent.)
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import Peer
from launchpad.courier.watching.log import warn

_LIMIT_S = 2.0  # a server that does not tell within this time is passed over
_MAX_SERVERS = 64

_looking = threading.Lock()
_told: set[frozenset[str]] = set()

Place = tuple[str, str]  # address of a server, method
Edge = tuple[Place, Place, str, str]  # from, to, and what the two servers are called


def look(peer: Peer | None = None) -> bool:
    """Looks for a ring that this thread's call is part of; without a `peer`, for any through this process.

    Says so if there is one, each ring once. False when somebody is looking already: where many wait, they
    would keep each other from being answered.
    """
    if not _looking.acquire(blocking=False):
        return False
    try:
        if ring := find_any() if peer is None else find(peer):
            _tell(ring)
    finally:
        _looking.release()
    return True


def find(peer: Peer) -> list[str]:
    """The ring that a call of the calling thread is part of, as `server.method`; empty if there is none."""
    asker = _Asker(peer)
    mine = _edges_of(sys._getframe())
    return next((ring for edge in mine if (ring := _search(edge, asker))), [])


def find_any() -> list[str]:
    """A ring that any call of this process is part of."""
    asker = _Asker()
    return next((ring for edge in dict.fromkeys(edges()) if (ring := _search(edge, asker))), [])


def _tell(ring: list[str]) -> None:
    if frozenset(ring) not in _told:
        _told.add(frozenset(ring))
        warn(
            f"these calls wait for each other, and none will ever be answered: {' → '.join(ring)}. "
            "Call with futures and do not wait, or set a call_timeout."
        )


def edges() -> list[Edge]:
    """Who waits for whom in this process: what a server answers when it is asked."""
    return [edge for frame in sys._current_frames().values() for edge in _edges_of(frame)]


def _search(start: Edge, asker: _Asker) -> list[str]:
    """Depth first from where `start` leads, until a way leads back to where it began."""
    trail = [start]
    seen: set[Place] = set()

    def follow(edge: Edge) -> bool:
        if edge[1] == start[0]:
            return True
        if edge[1] in seen:
            return False
        seen.add(edge[1])
        for each in asker.edges_from(edge[1]):
            trail.append(each)
            if follow(each):
                return True
            trail.pop()
        return False

    if not follow(start):
        return []
    return [*(f"{edge[2]}.{edge[0][1]}" for edge in trail), f"{start[2]}.{start[0][1]}"]


class _Asker:
    """Asks servers for their edges, each once."""

    def __init__(self, peer: Peer | None = None) -> None:
        self._peer = peer
        self._known: dict[str, list[Edge]] = {}

    def edges_from(self, place: Place) -> list[Edge]:
        address = place[0]
        if address not in self._known and len(self._known) < _MAX_SERVERS:
            self._known[address] = self._ask(address)
        return [edge for edge in self._known.get(address, []) if edge[0] == place]

    def _ask(self, address: str) -> list[Edge]:
        from launchpad.courier.clients.client import Client
        from launchpad.courier.servers.methods import WAITS

        peer = self._peer
        token = peer.own_token if peer is not None and address == peer.address else None
        client: Client[Any] = Client(address, token=token, wait_for_ready=False)
        try:
            channel = client._channel.with_options(Options(timeout_s=_LIMIT_S))
            answer: list[Edge] = channel.call(WAITS)
            return [edge for edge in answer if edge[0][0] == address]
        except Exception:  # not there, or not willing: no ring is found through it
            return []
        finally:
            client._channel.close()


def _edges_of(frame: FrameType | None) -> list[Edge]:
    """What the thread with this innermost frame serves, and what it waits for meanwhile.

    The innermost first. There are several where a thread runs methods of other servers (local/visit.py),
    and where its server has several addresses: callers wait for it at any of them.
    """
    found: list[Edge] = []
    waits_for: tuple[Place, str] | None = None
    while frame is not None:
        if waits_for is None:
            waits_for = _waited_for(frame)
        elif (serves := _served(frame)) is not None:
            places, server = serves
            found += [(place, waits_for[0], server, waits_for[1]) for place in places]
            waits_for = None
        frame = frame.f_back
    return found


def _waited_for(frame: FrameType) -> tuple[Place, str] | None:
    if not _is_ours(frame, "call", ("channel", "local")):
        return None
    if frame.f_locals["method"].startswith(b"courier/"):
        return None  # it asks what we ask
    peer: Peer = frame.f_locals["self"].peer
    if not peer.address:
        return None  # it waits for a server that is nowhere yet
    return (peer.address, frame.f_locals["method"].decode()), peer.label


def _served(frame: FrameType) -> tuple[list[Place], str] | None:
    if not _is_ours(frame, "answer", ("methods",)):
        return None
    methods = frame.f_locals["self"]
    method = frame.f_locals["method"].decode()
    return [(address, method) for address in methods.addresses], methods.server


def _is_ours(frame: FrameType, function: str, modules: tuple[str, ...]) -> bool:
    name = frame.f_globals.get("__name__", "")
    if frame.f_code.co_name != function or not name.startswith("launchpad.courier."):
        return False
    return name.rpartition(".")[2] in modules
