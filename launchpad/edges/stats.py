"""What has gone over the edges of a program: counted at both ends, gathered by the launcher.

    each worker ── events.EdgesCounted ──▶ supervisor ──▶ gathered(…) ──▶ running.edges()
                   when it is asked to, and at its end

Of each call two counts are kept: the caller's, which knows how long it waited, and the server's. What a
worker has counted that was killed is missing: there the other end's count stands in.

    CALLER    SERVER     METHOD    calls  errors  waiting    p50     p99   sent  received
    actor-0   learner-0  step     12,000       0    1.2 s  90 µs  210 µs  44 MB    120 kB
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from launchpad.courier.telemetry import call_stats
from launchpad.courier.telemetry.call_stats import MethodStats
from launchpad.courier.telemetry.registry import Place

Row = tuple[Place, MethodStats]
"""Caller, server and method; what was counted of it."""


@dataclass(frozen=True)
class EdgeStats:
    """The calls of one method, by one caller, to one server.

    Attributes:
        caller: A worker's name; `pid 4711` for the script, or another process.
        calls: How many it has made, those in flight included.
        served: How many have begun at the server: more if some were made again, fewer if some never came.
        errors: How many ended with an exception.
        in_flight: How many have not ended.
        bytes_sent: The bytes of arguments, as they were pickled.
        bytes_received: The bytes of results.
        waiting_s: How long the caller has waited, all calls together.
        serving_s: How long the server took for them.
        p50_s, p99_s: What half of them, and 99 of 100, took the caller at most; NaN while none has ended.
        is_exact: Whether nothing is missing: no worker that has counted them was killed.
    """

    caller: str
    server: str
    method: str
    calls: int
    served: int
    errors: int
    in_flight: int
    bytes_sent: int
    bytes_received: int
    waiting_s: float
    serving_s: float
    p50_s: float
    p99_s: float
    is_exact: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Edges:
    """All edges of a program over which calls have gone: `running.edges()`. A sequence, and a table as text.

    Example:
        edges = running.edges()
        print(edges)
        assert edges.total(server="learner-0", method="step").calls == 12_000
    """

    rows: tuple[EdgeStats, ...]

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
            )
        )

    def total(self, *, caller: str = "", server: str = "", method: str = "") -> EdgeStats:
        """Those of this caller, server and method as one; its quantiles are the largest of theirs."""
        rows = self.of(caller=caller, server=server, method=method).rows
        sums: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
        worst: dict[str, Any] = {}
        for name in _WORST:
            known = (value for row in rows if not math.isnan(value := getattr(row, name)))
            worst[name] = max(known, default=math.nan)
        is_exact = all(row.is_exact for row in rows)
        return EdgeStats(
            caller or "*", server or "*", method or "*", **sums, **worst, is_exact=is_exact
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
                    *map(call_stats.seconds, times),
                    *map(call_stats.size, (row.bytes_sent, row.bytes_received)),
                ]
            )
        return "\n".join(call_stats.aligned(table, n_text=3))


_SUMS = (
    "calls",
    "served",
    "errors",
    "in_flight",
    "bytes_sent",
    "bytes_received",
    "waiting_s",
    "serving_s",
)
_WORST = ("p50_s", "p99_s")


def _is_of(name: str, wanted: str) -> bool:
    return name == wanted or name.rpartition("-")[0] == wanted


def gathered(
    made: Iterable[Row], served: Iterable[Row], known: Collection[str], lacking: Collection[str]
) -> Edges:
    """The edges, of what callers and servers have counted.

    Args:
        known: The callers whose counts these are.
        lacking: Those workers of which some counts are missing.
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
                bytes_sent=sent,
                bytes_received=received,
                waiting_s=stats.total_s,
                serving_s=of_server.total_s,
                p50_s=stats.p50_s,
                p99_s=stats.p99_s,
                is_exact=caller not in lacking and server not in lacking,
            )
        )
    return Edges(tuple(rows))


def _by_place(rows: Iterable[Row]) -> dict[Place, list[MethodStats]]:
    found: dict[Place, list[MethodStats]] = {}
    for place, stats in rows:
        found.setdefault(place, []).append(stats)
    return found
