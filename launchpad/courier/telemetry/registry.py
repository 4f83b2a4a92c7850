"""A registry of the counts of all clients and servers in this process, by the worker that owns them.

    Client, ServerCore ── counts ──▶ registry ◀── counted(peer) ── readers of the counts

When a client or server is gone, its counts stay, added up by caller, server and method. So no count is
missing at the end, however many clients there were. The registry keeps no client and no server alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.caller import Peer, own_peer
from launchpad.courier.interruptions import RLock
from launchpad.courier.protocol.framing import BUILTIN_PREFIX
from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.courier.telemetry.counters import Counts, EdgeCounts, MethodCounts

Place = tuple[str, str, str]  # caller, server, method
Stats = dict[Place, MethodStats]
_Log = list[tuple[bytes, MethodCounts]]


class Counted(NamedTuple):
    """The counts of a worker: of calls that it made, and of calls that it served."""

    made: Stats
    served: Stats

    def plus(self, other: Counted) -> Counted:
        """Return both together, added up by caller, server and method."""
        return Counted(_added(self.made, other.made), _added(self.served, other.served))


class OwnCounts:
    """The counts of one incarnation of a worker, or of a process."""

    def __init__(self) -> None:
        self.clients: dict[int, tuple[list[str], _Log]] = {}
        self.servers: dict[int, tuple[str, list[tuple[str, _Log]]]] = {}
        self.gone: tuple[dict[Place, MethodCounts], dict[Place, MethodCounts]] = ({}, {})


# Reentrant, because garbage collection may run while a thread holds it, and end a client.
_lock = RLock()
_all: dict[Peer, OwnCounts] = {}


def add_client(server: list[str], counts: Counts) -> None:
    """Register a client's counts for the worker, or the process, that the calling thread belongs to.

    Args:
        server: A list whose first item is the server's name, as far as it is known. It may change.
        counts: The counts. They stay registered until this object is gone, and are added up then.
    """
    peer = own_peer()
    key = id(counts)
    with _lock:
        _all.setdefault(peer, OwnCounts()).clients[key] = server, counts.log
    weakref.finalize(counts, _end_client, peer, key).atexit = False


def add_server(core: object, name: str, counts: EdgeCounts) -> None:
    """Register a server's counts, as `add_client` does for a client, until `core` is gone."""
    peer = own_peer()
    key = id(core)
    with _lock:
        _all.setdefault(peer, OwnCounts()).servers[key] = name, counts.log
    weakref.finalize(core, _end_server, peer, key).atexit = False


def counted(peer: Peer) -> Counted:
    """Return all counts of this worker, or process, so far, without courier's own methods."""
    with _lock:
        worker_counts = _all.get(peer)
        if worker_counts is None:
            return Counted({}, {})
        as_caller = _copy_all(worker_counts.gone[0])
        as_server = _copy_all(worker_counts.gone[1])
        for server, log in list(worker_counts.clients.values()):
            _add(as_caller, _of_client(peer, server, log))
        for name, logs in list(worker_counts.servers.values()):
            _add(as_server, _of_server(name, logs))
    return Counted(made=_read(as_caller), served=_read(as_server))


def calls_made(peer: Peer) -> int:
    """Return how many calls this worker, or process, has begun so far, without courier's own methods."""
    with _lock:
        worker_counts = _all.get(peer)
        if worker_counts is None:
            return 0
        n = sum(counts.started for counts in worker_counts.gone[0].values())
        for server, log in list(worker_counts.clients.values()):
            n += sum(counts.started for _, counts in _of_client(peer, server, log))
        return n


def forget(peer: Peer) -> None:
    """Drop the counts of a worker that was a thread of this process and has ended."""
    with _lock:
        _all.pop(peer, None)


def _end_client(peer: Peer, key: int) -> None:
    with _lock:
        worker_counts = _all.get(peer)
        if worker_counts is None:  # `forget` has removed the worker
            return
        client = worker_counts.clients.pop(key, None)
        if client is not None:
            server, log = client
            _add(worker_counts.gone[0], _of_client(peer, server, log))


def _end_server(peer: Peer, key: int) -> None:
    with _lock:
        worker_counts = _all.get(peer)
        if worker_counts is None:  # `forget` has removed the worker
            return
        server = worker_counts.servers.pop(key, None)
        if server is not None:
            name, logs = server
            _add(worker_counts.gone[1], _of_server(name, logs))


def _of_client(peer: Peer, server: list[str], log: _Log) -> Iterator[tuple[Place, MethodCounts]]:
    for method, counts in list(log):
        if not method.startswith(BUILTIN_PREFIX):
            yield (peer.name, server[0], method.decode(errors="replace")), counts


def _of_server(name: str, logs: list[tuple[str, _Log]]) -> Iterator[tuple[Place, MethodCounts]]:
    for caller, log in list(logs):
        for method, counts in list(log):
            if not method.startswith(BUILTIN_PREFIX):
                yield (caller, name, method.decode(errors="replace")), counts


def _add(to: dict[Place, MethodCounts], more: Iterator[tuple[Place, MethodCounts]]) -> None:
    for place, counts in more:
        if place in to:
            to[place].add(counts)
        else:
            to[place] = _copy(counts)


def _added(first: Stats, second: Stats) -> Stats:
    sums = dict(first)
    for place, stats in second.items():
        sums[place] = call_stats.added((sums[place], stats)) if place in sums else stats
    return sums


def _copy(counts: MethodCounts) -> MethodCounts:
    copied = MethodCounts()
    copied.add(counts)
    return copied


def _copy_all(counts: dict[Place, MethodCounts]) -> dict[Place, MethodCounts]:
    return {place: _copy(method_counts) for place, method_counts in counts.items()}


def _read(counts: dict[Place, MethodCounts]) -> Stats:
    """Return the statistics, sorted by place."""
    return {place: call_stats.of(method_counts) for place, method_counts in sorted(counts.items())}


def _renew() -> None:
    """Start a forked child with an empty registry: it has made no calls yet, and serves nothing."""
    global _lock
    _lock = RLock()
    _all.clear()


fork.reset_in_child(_renew)
