"""Statistics of the calls over a program's edges: counted at both ends, gathered by the launcher.

    each worker ── events.EdgesCounted ──▶ supervisor ──▶ gathered(…) ──▶ running.edges()
                   when the supervisor asks, and at the worker's end

Both ends count each call: the caller, which knows how long it waited, and the server. If a caller was
killed, its counts are missing, and the server's counts are used instead.

    CALLER    SERVER     METHOD    calls  errors  waiting    p50     p99   sent  received
    actor-0   learner-0  step     12,000       0    1.2 s  90 µs  210 µs  44 MiB   120 KiB
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from launchpad.courier import formatting
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.courier.telemetry.registry import Place

Row = tuple[Place, MethodStats]
"""A caller, server and method, and the statistics of their calls."""


@dataclass(frozen=True)
class EdgeStats:
    """Statistics of the calls of one method, by one caller, to one server.

    Example:
        for edge in running.edges():
            print(f"{edge.caller} has called {edge.server}.{edge.method} {edge.calls} times")

    Attributes:
        caller: A worker's name. For the script, and any other process, `pid 4711`.
        calls: Number of calls that the caller made, including those in flight.
        served: Number of calls that began at the server. It is larger than `calls` if calls were made again,
            and smaller if some never arrived.
        errors: Number of calls that ended with an exception.
        in_flight: Number of calls that have not ended.
        items: Number of items in the calls' streams, both arguments and results.
        bytes_sent: Size of the pickled arguments.
        bytes_received: Size of the results.
        waiting_s: How long the caller waited, summed over all calls.
        serving_s: How long the server took, summed over all calls.
        buckets: Histogram of how long the caller waited for calls that have ended: `buckets[i]` calls took
            from 2**(i-1) to 2**i µs.
        is_exact: True if no counts are missing: neither end was killed, and both answered.
        period_s: The time that these statistics cover: since the program began, or since an earlier
            snapshot.
    """

    caller: str
    server: str
    method: str
    calls: int
    served: int
    errors: int
    in_flight: int
    items: int
    bytes_sent: int
    bytes_received: int
    waiting_s: float
    serving_s: float
    buckets: tuple[int, ...]
    is_exact: bool
    period_s: float = 0.0

    @property
    def p50_s(self) -> float:
        """The median of how long the caller waited for a call; NaN if no call has ended."""
        return call_stats.quantile_s(self.buckets, 0.5)

    @property
    def p99_s(self) -> float:
        """The 99th percentile of how long the caller waited for a call; NaN if no call has ended."""
        return call_stats.quantile_s(self.buckets, 0.99)

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.period_s if self.period_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """The bytes of arguments and results together, per second."""
        n_bytes = self.bytes_sent + self.bytes_received
        return n_bytes / self.period_s if self.period_s else 0.0

    def _since(self, earlier: EdgeStats | None, period_s: float) -> EdgeStats:
        """Return the difference to an earlier snapshot, taken `period_s` before this one.

        `in_flight` and `is_exact` keep their current values.
        """
        if earlier is None:
            return replace(self, period_s=period_s)
        sums: list[Any] = list(map(operator.sub, _sums_of(self), _sums_of(earlier)))
        buckets = tuple(map(operator.sub, self.buckets, earlier.buckets))
        # If the server's counts replaced the caller's in only one of the two snapshots, a difference can be
        # negative.
        if min(*sums, *buckets) < 0:
            sums = [max(0, n) for n in sums]
            buckets = tuple(max(0, n) for n in buckets)
        sums[_SUMS.index("in_flight")] = self.in_flight
        # `replace` would be slow here: a program may have hundreds of edges.
        place = self.caller, self.server, self.method
        fields: list[Any] = [*place, *sums, buckets, self.is_exact, period_s]
        return EdgeStats(*fields)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON: quantiles and rates instead of buckets, and None for NaN."""
        fields = asdict(self)
        del fields["buckets"]
        derived = {name: getattr(self, name) for name in _DERIVED}
        return fields | {n: None if math.isnan(value) else value for n, value in derived.items()}


@dataclass(frozen=True)
class Edges:
    """All edges of a program that carried calls: `running.edges()`. A sequence; its `str` is a table.

    Example:
        edges = running.edges()
        print(edges)
        assert edges.total(server="learner-0", method="step").calls == 12_000

    Attributes:
        lacking: The workers whose counts are incomplete: they were killed, or don't answer.
        period_s: The time that the statistics cover: since the program began, or since an earlier snapshot.
    """

    rows: tuple[EdgeStats, ...]
    lacking: tuple[str, ...] = ()
    period_s: float = 0.0

    def __iter__(self) -> Iterator[EdgeStats]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> EdgeStats:
        return self.rows[index]

    def of(self, *, caller: str = "", server: str = "", method: str = "") -> Edges:
        """Return the edges with this caller, server and method. A group's label matches all its workers."""
        filters = ((caller, "caller"), (server, "server"), (method, "method"))
        return Edges(
            tuple(
                row
                for row in self.rows
                if all(not name or _is_of(getattr(row, field), name) for name, field in filters)
            ),
            self.lacking,
            self.period_s,
        )

    def since(self, earlier: Edges) -> Edges:
        """Return the statistics of the time since an earlier snapshot of the same program.

        Example:
            before = running.edges()
            time.sleep(1.0)
            print(running.edges().since(before).total(server="learner").calls_per_s)
        """
        before = {(row.caller, row.server, row.method): row for row in earlier.rows}
        period_s = self.period_s - earlier.period_s
        rows = (r._since(before.get((r.caller, r.server, r.method)), period_s) for r in self.rows)
        return Edges(tuple(rows), self.lacking, period_s)

    def total(self, *, caller: str = "", server: str = "", method: str = "") -> EdgeStats:
        """Return the sum over all edges with this caller, server and method."""
        rows = self.of(caller=caller, server=server, method=method).rows
        sums: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
        buckets = tuple(map(sum, zip(*(row.buckets for row in rows), strict=True)))
        # If both ends of an edge lack counts, the edge may have no row at all.
        lacking = (
            [worker for worker in self.lacking if not name or _is_of(worker, name)]
            for name in (caller, server)
        )
        return EdgeStats(
            caller or "*",
            server or "*",
            method or "*",
            **sums,
            buckets=buckets,
            period_s=self.period_s,
            is_exact=all(row.is_exact for row in rows) and not all(lacking),
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return plain data, ready for JSON."""
        return [row.to_dict() for row in self.rows]

    def __str__(self) -> str:
        if not self.rows:
            return "no calls yet"
        head = "CALLER SERVER METHOD calls errors waiting p50 p99 sent received".split()
        table = [head]
        for row in sorted(self.rows, key=lambda row: -row.calls):
            times = (row.waiting_s, row.p50_s, row.p99_s)
            table.append(
                [
                    row.caller,
                    row.server,
                    row.method,
                    f"{'' if row.is_exact else '≥ '}{row.calls:,}",
                    f"{row.errors:,}",
                    *map(formatting.seconds, times),
                    *map(formatting.size, (row.bytes_sent, row.bytes_received)),
                ]
            )
        return "\n".join(formatting.aligned(table, n_text=3))


_SUMS = (
    "calls",
    "served",
    "errors",
    "in_flight",
    "items",
    "bytes_sent",
    "bytes_received",
    "waiting_s",
    "serving_s",
)
_sums_of = operator.attrgetter(*_SUMS)
_DERIVED = ("p50_s", "p99_s", "calls_per_s", "bytes_per_s")


def _is_of(name: str, name_or_label: str) -> bool:
    return name == name_or_label or name.rpartition("-")[0] == name_or_label


def gathered(
    made: Iterable[Row],
    served: Iterable[Row],
    known: Collection[str],
    lacking: Collection[str],
    period_s: float = 0.0,
) -> Edges:
    """Combine the counts of callers and servers into one `EdgeStats` for each edge.

    Args:
        made: The callers' counts.
        served: The servers' counts.
        known: The callers that sent counts.
        lacking: The workers whose counts are incomplete.
        period_s: How long ago the program began.
    """
    by_caller = _by_place(made)
    by_server = _by_place(served)
    rows = []
    for place in sorted({*by_caller, *by_server}):
        caller, server, _ = place
        of_caller = call_stats.added(by_caller.get(place, ()))
        of_server = call_stats.added(by_server.get(place, ()))
        stats = of_caller
        bytes_sent = of_caller.bytes_out
        bytes_received = of_caller.bytes_in
        is_complete = caller in known and caller not in lacking
        if not is_complete and of_server.calls > of_caller.calls:
            # The server sends what the caller receives, so in and out change places.
            stats = of_server
            bytes_sent = of_server.bytes_in
            bytes_received = of_server.bytes_out
        rows.append(
            EdgeStats(
                *place,
                calls=stats.calls,
                served=of_server.calls,
                errors=stats.errors,
                in_flight=stats.in_flight,
                items=stats.items,
                bytes_sent=bytes_sent,
                bytes_received=bytes_received,
                waiting_s=stats.total_s,
                serving_s=of_server.total_s,
                buckets=stats.buckets,
                period_s=period_s,
                is_exact=caller not in lacking and server not in lacking,
            )
        )
    return Edges(tuple(rows), tuple(sorted(lacking)), period_s)


def _by_place(rows: Iterable[Row]) -> dict[Place, list[MethodStats]]:
    by_place: dict[Place, list[MethodStats]] = {}
    for place, stats in rows:
        by_place.setdefault(place, []).append(stats)
    return by_place
