"""Statistics of a client's or a server's calls, read at one moment.

    client.stats()                  Client ──▶ ClientStats   by method
    server.stats()                  Server ──▶ ServerStats   by method, and by client and method
    courier.server_stats(client)    the same, fetched with a call

Each of them can be printed as a table, or as text for Prometheus (prometheus.py).

    learner-0 at unix:/run/user/1000/learner-0.sock: up 12.0 s, 3 connections, incarnation 5f3a90…
    method  from     calls  errors  in flight    mean     p50     p99       in      out
    step    actor-0  1,000       2          1  120 µs  110 µs  1.2 ms  1.2 MiB   30 KiB
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launchpad.courier import formatting
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry import prometheus
from launchpad.courier.telemetry.counters import N_BUCKETS, Counts, EdgeCounts, MethodCounts


@dataclass(frozen=True)
class MethodStats:
    """Statistics of the calls of one method.

    Attributes:
        calls: Number of calls that began, including those in flight.
        errors: Number of calls that ended with an exception of any origin, including missed deadlines.
        in_flight: Number of calls that began and have not ended.
        bytes_in: Bytes of payload received: results at a client, arguments at a server.
        bytes_out: Bytes of payload sent.
        total_s: Seconds that the ended calls took, summed.
        buckets: Histogram of the ended calls: `buckets[i]` took from 2**(i-1) to 2**i µs. The first one
            counts calls that took less than 1 µs.
        items: Number of items in the calls' streams, both results and arguments. A call whose result is a
            stream ends when the stream is opened.
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
        """The mean duration of the ended calls; NaN if no call has ended, as for `quantile_s`."""
        return self.total_s / self.ended if self.ended else float("nan")

    @property
    def p50_s(self) -> float:
        return self.quantile_s(0.5)

    @property
    def p99_s(self) -> float:
        return self.quantile_s(0.99)

    def quantile_s(self, share: float) -> float:
        """Return the time within which this share of the calls ended: `quantile_s(0.9)`.

        The result is interpolated within a bucket, so it is off by a factor of two at most.
        """
        return quantile_s(self.buckets, share)

    @property
    def histogram(self) -> dict[float, int]:
        """The number of calls in each bucket, by the bucket's upper limit in seconds.

        The result runs from the first bucket with any calls to the last one.
        """
        filled = [bucket for bucket, count in enumerate(self.buckets) if count]
        if not filled:
            return {}
        bucket_range = range(filled[0], filled[-1] + 1)
        return {_bounds_us(bucket)[1] * 1e-6: self.buckets[bucket] for bucket in bucket_range}


@dataclass(frozen=True)
class ClientStats:
    """Statistics of a client's calls, over all its options and connections so far.

    Attributes:
        name: The name by which servers know this client: the worker's name, or `pid 4711` outside workers.
        server: The server's own name; empty before its first answer.
        address: The server's current address; empty while it is unknown.
        incarnation: The id of the server's start that the client last talked to; empty before the first call.
        uptime_s: Seconds since the client was made.
        connections: Number of connections that are open now.
        methods: Statistics by method name.
    """

    name: str
    server: str
    address: str
    incarnation: str
    uptime_s: float
    connections: int
    methods: Mapping[str, MethodStats]

    def __str__(self) -> str:
        where = self.address or "a place that is not known yet"
        title = f"{self.name} to {self.server or 'a server'} at {where}"
        rows = [((name,), method_stats) for name, method_stats in self.methods.items()]
        return _table(title, self, ("method",), rows)

    def to_prometheus(self) -> str:
        """Return text in Prometheus' exposition format 0.0.4. See prometheus.py for the names."""
        owner = {"client": self.name, "server": self.server}
        series = [
            ({**owner, "method": method}, method_stats)
            for method, method_stats in self.methods.items()
        ]
        return prometheus.text("courier_client", owner, self, series)


@dataclass(frozen=True)
class ServerStats:
    """Statistics of the calls that a server received.

    Example:
        stats = courier.server_stats(learner)
        stats.methods["step"].p99_s
        stats.edges["actor-0"]["step"].in_flight

    Attributes:
        name: The server's own name.
        address: The server's address.
        incarnation: The id of the server's current start; empty before the first start.
        uptime_s: Seconds since its start.
        connections: Number of connections that are open now. In-process clients have none.
        methods: Statistics by method name, over all clients. `(unknown)` stands for methods that the server
            doesn't have. Names with a slash are courier's own methods.
        edges: Statistics by client and method. A client has its worker's name, or `pid 4711` outside
            workers.
    """

    name: str
    address: str
    incarnation: str
    uptime_s: float
    connections: int
    methods: Mapping[str, MethodStats]
    edges: Mapping[str, Mapping[str, MethodStats]]

    def __str__(self) -> str:
        rows = [
            ((method, peer), method_stats)
            for peer, methods in self.edges.items()
            for method, method_stats in methods.items()
        ]
        title = f"{self.name} at {self.address}"
        return _table(title, self, ("method", "from"), sorted(rows, key=lambda row: row[0]))

    def to_prometheus(self) -> str:
        """Return text in Prometheus' exposition format 0.0.4. See prometheus.py for the names."""
        owner = {"server": self.name}
        series = [
            ({**owner, "peer": peer, "method": method}, method_stats)
            for peer, methods in self.edges.items()
            for method, method_stats in methods.items()
        ]
        return prometheus.text("courier_server", owner, self, series)


def read(counts: Counts) -> dict[str, MethodStats]:
    """Return statistics by method, sorted by name."""
    stats = {}
    for method, method_counts in sorted(counts.copy().items()):
        stats[method.decode(errors="replace")] = of(method_counts)
    return stats


def of(counts: MethodCounts) -> MethodStats:
    """Return the statistics of a method. They are consistent even if calls go on during the read."""
    # Read the counts in the opposite order to that in which a call changes them. Otherwise a call could
    # appear to have ended without having begun.
    buckets = tuple(counts.buckets)
    bytes_in = counts.bytes_in
    bytes_out = counts.bytes_out
    total_s = counts.total_s
    errors = counts.errors
    started = counts.started
    items = counts.items
    in_flight = started - sum(buckets)
    return MethodStats(started, errors, in_flight, bytes_in, bytes_out, total_s, buckets, items)


def read_edges(edges: EdgeCounts) -> dict[str, dict[str, MethodStats]]:
    """Return statistics by client and method, sorted by name."""
    return {peer: read(counts) for peer, counts in sorted(edges.copy().items())}


def total(edges: Mapping[str, Mapping[str, MethodStats]]) -> dict[str, MethodStats]:
    """Return statistics by method, summed over all clients."""
    names = sorted({name for methods in edges.values() for name in methods})
    sums = {}
    for name in names:
        sums[name] = added(methods[name] for methods in edges.values() if name in methods)
    return sums


def added(stats: Iterable[MethodStats]) -> MethodStats:
    """Return the sum of several statistics. Without any statistics, it has only zeros."""
    summands = list(stats)
    if not summands:
        return _NONE
    if len(summands) == 1:
        return summands[0]
    *numbers, buckets, items = zip(*(vars(summand).values() for summand in summands), strict=True)
    by_bucket = tuple(map(sum, zip(*buckets, strict=True)))
    sums: list[Any] = [*map(sum, numbers), by_bucket, sum(items)]
    return MethodStats(*sums)


def quantile_s(buckets: Sequence[int], share: float) -> float:
    """Do what `MethodStats.quantile_s` does, for these buckets."""
    rank = share * sum(buckets)
    for bucket, count in enumerate(buckets):
        if count and rank <= count:
            low, high = _bounds_us(bucket)
            return (low + (high - low) * rank / count) * 1e-6
        rank -= count
    return float("nan")


_NONE = MethodStats(0, 0, 0, 0, 0, 0.0, (0,) * N_BUCKETS)


def _table(
    title: str,
    stats: ClientStats | ServerStats,
    keys: tuple[str, ...],
    rows: Sequence[tuple[tuple[str, ...], MethodStats]],
) -> str:
    """Format a headline, and a table with one row for each method."""
    connections = f"{stats.connections} connection{'s' * (stats.connections != 1)}"
    incarnation = f", incarnation {stats.incarnation[:8]}" if stats.incarnation else ""
    headline = f"{title}: up {formatting.seconds(stats.uptime_s)}, {connections}{incarnation}"
    if not rows:
        return f"{headline}\nno calls yet"
    table = [(*keys, "calls", "errors", "in flight", "mean", "p50", "p99", "in", "out")]
    for names, row in rows:
        counts = [f"{n:,}" for n in (row.calls, row.errors, row.in_flight)]
        times = [formatting.seconds(s) for s in (row.mean_s, row.p50_s, row.p99_s)]
        table.append(
            (
                *names,
                *counts,
                *times,
                formatting.size(row.bytes_in),
                formatting.size(row.bytes_out),
            )
        )
    return "\n".join([headline, *formatting.aligned(table, len(keys))])


def _bounds_us(bucket: int) -> tuple[int, int]:
    return (1 << bucket - 1 if bucket else 0), 1 << bucket
