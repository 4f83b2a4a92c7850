"""What has gone over the edges of a program: counted at both ends, gathered by the launcher.

    each worker ── events.EdgesCounted ──▶ supervisor ──▶ gathered(…) ──▶ running.edges()
                   when it is asked to, and at its end

Of each call two counts are kept: the caller's, which knows how long it waited, and the server's. What a
worker has counted that was killed is missing: there the other end's count stands in.

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
"""Caller, server and method; what was counted of it."""


@dataclass(frozen=True)
class EdgeStats:
    """The calls of one method, by one caller, to one server.

    Example:
        for edge in running.edges():
            print(f"{edge.caller} has called {edge.server}.{edge.method} {edge.calls} times")

    Attributes:
        caller: A worker's name; `pid 4711` for the script, or another process.
        calls: How many it has made, those in flight included.
        served: How many have begun at the server: more if some were made again, fewer if some never came.
        errors: How many ended with an exception.
        in_flight: How many have not ended.
        items: How many items their streams have had, arguments and results.
        bytes_sent: The bytes of arguments, as they were pickled.
        bytes_received: The bytes of results.
        waiting_s: How long the caller has waited, all calls together.
        serving_s: How long the server took for them.
        buckets: How long the caller waited for those that have ended: `buckets[i]` of them from 2**(i-1) to
            2**i µs.
        is_exact: Whether nothing is missing: no worker that has counted them was killed.
        period_s: How long all this took: since the program began, or since an earlier look.
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
        """What half of those that have ended took the caller at most; NaN while none has."""
        return call_stats.quantile_s(self.buckets, 0.5)

    @property
    def p99_s(self) -> float:
        """What 99 of 100 took at most."""
        return call_stats.quantile_s(self.buckets, 0.99)

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.period_s if self.period_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Of arguments and results together."""
        n_bytes = self.bytes_sent + self.bytes_received
        return n_bytes / self.period_s if self.period_s else 0.0

    def _since(self, earlier: EdgeStats | None, period_s: float) -> EdgeStats:
        """What has come since an earlier look, so long ago; `in_flight` and `is_exact` are those of now."""
        if earlier is None:
            return replace(self, period_s=period_s)
        sums: list[Any] = list(map(operator.sub, _sums_of(self), _sums_of(earlier)))
        buckets = tuple(map(operator.sub, self.buckets, earlier.buckets))
        # A server's counts may have stood in at one look only: nothing is less than none.
        if min(*sums, *buckets) < 0:
            sums, buckets = [max(0, n) for n in sums], tuple(max(0, n) for n in buckets)
        sums[_SUMS.index("in_flight")] = self.in_flight
        # Not by `replace`, which is slow where there are hundreds of edges.
        place = self.caller, self.server, self.method
        fields: list[Any] = [*place, *sums, buckets, self.is_exact, period_s]
        return EdgeStats(*fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: quantiles and rates in place of the buckets; None for NaN."""
        fields = asdict(self)
        del fields["buckets"]
        derived = {name: getattr(self, name) for name in _DERIVED}
        return fields | {n: None if math.isnan(value) else value for n, value in derived.items()}


@dataclass(frozen=True)
class Edges:
    """All edges of a program over which calls have gone: `running.edges()`. A sequence, and a table as text.

    Example:
        edges = running.edges()
        print(edges)
        assert edges.total(server="learner-0", method="step").calls == 12_000

    Attributes:
        lacking: The workers of which some counts are missing: they were killed, or do not answer.
        period_s: How long all this took: since the program began, or since an earlier look.
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
        """Those of this caller, server and method; a group's label stands for its workers."""
        wanted = ((caller, "caller"), (server, "server"), (method, "method"))
        return Edges(
            tuple(
                row
                for row in self.rows
                if all(not name or _is_of(getattr(row, what), name) for name, what in wanted)
            ),
            self.lacking,
            self.period_s,
        )

    def since(self, earlier: Edges) -> Edges:
        """What has gone over them since an earlier look at the same program.

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
        """Those of this caller, server and method as one."""
        rows = self.of(caller=caller, server=server, method=method).rows
        sums: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
        buckets = tuple(map(sum, zip(*(row.buckets for row in rows), strict=True)))
        # Of an edge whose ends both lack counts there may be no row.
        lacking = (
            [each for each in self.lacking if not name or _is_of(each, name)]
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
        """Plain data, ready for JSON."""
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


def _is_of(name: str, wanted: str) -> bool:
    return name == wanted or name.rpartition("-")[0] == wanted


def gathered(
    made: Iterable[Row],
    served: Iterable[Row],
    known: Collection[str],
    lacking: Collection[str],
    period_s: float = 0.0,
) -> Edges:
    """The edges, of what callers and servers have counted.

    Args:
        known: The callers whose counts these are.
        lacking: Those workers of which some counts are missing.
        period_s: How long ago the program began.
    """
    by_caller, by_server = _by_place(made), _by_place(served)
    rows = []
    for place in sorted({*by_caller, *by_server}):
        caller, server, _ = place
        of_caller = call_stats.added(by_caller.get(place, ()))
        of_server = call_stats.added(by_server.get(place, ()))
        stats, sent, received = of_caller, of_caller.bytes_out, of_caller.bytes_in
        is_complete = caller in known and caller not in lacking
        if not is_complete and of_server.calls > of_caller.calls:  # seen from the other side
            stats, sent, received = of_server, of_server.bytes_in, of_server.bytes_out
        rows.append(
            EdgeStats(
                *place,
                calls=stats.calls,
                served=of_server.calls,
                errors=stats.errors,
                in_flight=stats.in_flight,
                items=stats.items,
                bytes_sent=sent,
                bytes_received=received,
                waiting_s=stats.total_s,
                serving_s=of_server.total_s,
                buckets=stats.buckets,
                period_s=period_s,
                is_exact=caller not in lacking and server not in lacking,
            )
        )
    return Edges(tuple(rows), tuple(sorted(lacking)), period_s)


def _by_place(rows: Iterable[Row]) -> dict[Place, list[MethodStats]]:
    found: dict[Place, list[MethodStats]] = {}
    for place, stats in rows:
        found.setdefault(place, []).append(stats)
    return found
