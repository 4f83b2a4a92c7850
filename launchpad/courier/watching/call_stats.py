"""What a client or a server has counted, read at one moment.

    client.stats()                  Client ──▶ ClientStats   by method
    server.stats()                  Server ──▶ ServerStats   by method, and by client and method
    courier.server_stats(client)    the same, asked from afar

Each prints as a table, and as text for Prometheus (prometheus.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

from launchpad.courier import identity
from launchpad.courier.watching.counts import Counts, EdgeCounts, MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.clients.client import Channel
    from launchpad.courier.servers.house import House


@dataclass(frozen=True)
class MethodStats:
    """The calls of one method.

    Attributes:
        calls: begun, those in flight included.
        errors: ended with an exception, whatever raised it; those of a deadline too.
        in_flight: begun and not ended.
        bytes_in: of payload received: by a client results, by a server arguments.
        bytes_out: of payload sent.
        total_s: what the ended ones took together.
        buckets: `buckets[i]` ended ones took from 2**(i-1) to 2**i µs; the first: less than 1 µs.
        items: of their streams, results and arguments. A call whose result is a stream ends when that
            is opened.
    """

    calls: int
    errors: int
    in_flight: int
    bytes_in: int
    bytes_out: int
    total_s: float
    buckets: tuple[int, ...]
    items: int = 0

    @property
    def ended(self) -> int:
        return sum(self.buckets)

    @property
    def mean_s(self) -> float:
        """NaN while no call has ended, as `quantile_s`."""
        return self.total_s / self.ended if self.ended else float("nan")

    @property
    def p50_s(self) -> float:
        return self.quantile_s(0.5)

    @property
    def p99_s(self) -> float:
        return self.quantile_s(0.99)

    def quantile_s(self, share: float) -> float:
        """So long at most did this share of the ended calls take: `quantile_s(0.9)`.

        Interpolated within a bucket, so that it is off by a factor of two at the very most.
        """
        wanted = share * self.ended
        for bucket, count in enumerate(self.buckets):
            if count and wanted <= count:
                low, high = _bounds_us(bucket)
                return (low + (high - low) * wanted / count) * 1e-6
            wanted -= count
        return float("nan")

    @property
    def histogram(self) -> dict[float, int]:
        """Upper limit in seconds → calls that took less, but no less than the limit before it.

        From the first bucket that has any to the last.
        """
        filled = [bucket for bucket, count in enumerate(self.buckets) if count]
        if not filled:
            return {}
        within = range(filled[0], filled[-1] + 1)
        return {_bounds_us(bucket)[1] * 1e-6: self.buckets[bucket] for bucket in within}


@dataclass(frozen=True)
class ClientStats:
    """What a client has counted of its calls, over all its options and connections so far.

    Attributes:
        name: what we introduce ourselves as: the worker's name, `pid 4711` outside of workers.
        server: what the server calls itself; empty if it has not said so yet.
        address: where it is now; empty if nobody knows yet.
        incarnation: which start of the server we talked to last; empty before the first call.
        uptime_s: since the client was made.
        connections: open now.
        methods: by name.
    """

    name: str
    server: str
    address: str
    incarnation: str
    uptime_s: float
    connections: int
    methods: Mapping[str, MethodStats]

    def __str__(self) -> str:
        from launchpad.courier.watching import stats_table

        return stats_table.of_client(self)

    def to_prometheus(self) -> str:
        """Text in Prometheus' exposition format 0.0.4; see prometheus.py for the names."""
        from launchpad.courier.watching import prometheus

        return prometheus.of_client(self)


@dataclass(frozen=True)
class ServerStats:
    """What a server has counted of the calls it got.

    Example:
        stats = courier.server_stats(learner)
        stats.methods["step"].p99_s
        stats.edges["actor-0"]["step"].in_flight

    Attributes:
        name: what the server calls itself.
        incarnation: another after each start; empty before the first.
        uptime_s: since its start.
        connections: open now; in-process clients have none.
        methods: by name, over all clients. `(unknown)` are those that it does not have; names with
            a slash are courier's own.
        edges: client → method. Clients go by the name of their worker, `pid 4711` outside of workers.
    """

    name: str
    address: str
    incarnation: str
    uptime_s: float
    connections: int
    methods: Mapping[str, MethodStats]
    edges: Mapping[str, Mapping[str, MethodStats]]

    def __str__(self) -> str:
        from launchpad.courier.watching import stats_table

        return stats_table.of_server(self)

    def to_prometheus(self) -> str:
        """Text in Prometheus' exposition format 0.0.4; see prometheus.py for the names."""
        from launchpad.courier.watching import prometheus

        return prometheus.of_server(self)


def of_client(channel: Channel) -> ClientStats:
    """What `client.stats()` returns."""
    peer = channel.peer
    return ClientStats(
        name=identity.name(),
        server=peer.server,
        address=peer.locate(),
        incarnation=peer.welcome.incarnation.hex() if peer.welcome is not None else "",
        uptime_s=time.monotonic() - peer.began,
        connections=channel.n_connections,
        methods=read(channel.counts),
    )


def of_server(name: str, address: str, house: House | None) -> ServerStats:
    """What `server.stats()` returns."""
    if house is None:
        return ServerStats(name, address, "", 0.0, 0, {}, {})
    edges = read_edges(house.counts)
    return ServerStats(
        name=name,
        address=address,
        incarnation=house.incarnation.hex(),
        uptime_s=time.monotonic() - house.began,
        connections=len(house.sessions),
        methods=total(edges),
        edges=edges,
    )


def read(counts: Counts) -> dict[str, MethodStats]:
    """By method, sorted. Calls may go on meanwhile: what is read of each is never inconsistent."""
    by_method = sorted(counts.copy().items())
    return {method.decode(errors="replace"): _read(each) for method, each in by_method}


def read_edges(edges: EdgeCounts) -> dict[str, dict[str, MethodStats]]:
    """By client and method, sorted."""
    return {peer: read(counts) for peer, counts in sorted(edges.copy().items())}


def total(edges: Mapping[str, Mapping[str, MethodStats]]) -> dict[str, MethodStats]:
    """By method, over all clients."""
    names = sorted({name for methods in edges.values() for name in methods})
    return {
        name: _sum(methods[name] for methods in edges.values() if name in methods) for name in names
    }


def _read(counts: MethodCounts) -> MethodStats:
    # In the order opposite to that in which a call changes them: no call has ended but not begun.
    buckets = tuple(counts.buckets)
    ended = sum(buckets)
    bytes_in, bytes_out, total_s = counts.bytes_in, counts.bytes_out, counts.total_s
    errors, started, items = counts.errors, counts.started, counts.items
    return MethodStats(
        started, errors, started - ended, bytes_in, bytes_out, total_s, buckets, items
    )


def _sum(parts: Iterable[MethodStats]) -> MethodStats:
    first, *others = parts
    for other in others:
        first = MethodStats(
            first.calls + other.calls,
            first.errors + other.errors,
            first.in_flight + other.in_flight,
            first.bytes_in + other.bytes_in,
            first.bytes_out + other.bytes_out,
            first.total_s + other.total_s,
            tuple(map(add, first.buckets, other.buckets)),
            first.items + other.items,
        )
    return first


def _bounds_us(bucket: int) -> tuple[int, int]:
    return (1 << bucket - 1 if bucket else 0), 1 << bucket
