"""Stats as a table for people.

learner-0 at unix:/run/user/1000/learner-0.sock: up 12.0 s, 3 connections, incarnation 5f3a90…
method  from     calls  errors  in flight    mean     p50     p99       in      out
step    actor-0  1,000       2          1  120 µs  110 µs  1.2 ms   1.2 MB  30.0 kB
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launchpad.courier.watching.call_stats import ClientStats, MethodStats, ServerStats

_TITLES = ("calls", "errors", "in flight", "mean", "p50", "p99", "in", "out")

Row = tuple[str, ...]


def of_client(stats: ClientStats) -> str:
    """What `str(client.stats())` is."""
    where = stats.address or "a place that nobody knows yet"
    what = f"{stats.name} to {stats.server or 'a server'} at {where}"
    rows = [(name, *_cells(each)) for name, each in stats.methods.items()]
    return "\n".join([_headline(what, stats), *_table(("method", *_TITLES), rows, n_names=1)])


def of_server(stats: ServerStats) -> str:
    """What `str(server.stats())` is: a row for each method and client."""
    rows = [
        (method, peer, *_cells(each))
        for peer, methods in stats.edges.items()
        for method, each in methods.items()
    ]
    table = _table(("method", "from", *_TITLES), sorted(rows), n_names=2)
    return "\n".join([_headline(f"{stats.name} at {stats.address}", stats), *table])


def _headline(what: str, stats: ClientStats | ServerStats) -> str:
    connections = f"{stats.connections} connection{'s' * (stats.connections != 1)}"
    incarnation = f", incarnation {stats.incarnation[:8]}" if stats.incarnation else ""
    return f"{what}: up {_seconds(stats.uptime_s)}, {connections}{incarnation}"


def _cells(stats: MethodStats) -> Row:
    return (
        *(f"{n:,}" for n in (stats.calls, stats.errors, stats.in_flight)),
        *(_seconds(s) for s in (stats.mean_s, stats.p50_s, stats.p99_s)),
        *(_size(n) for n in (stats.bytes_in, stats.bytes_out)),
    )


def _table(titles: Row, rows: Sequence[Row], n_names: int) -> list[str]:
    if not rows:
        return ["no calls yet"]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    return [_line(row, widths, n_names) for row in (titles, *rows)]


def _line(row: Row, widths: Sequence[int], n_names: int) -> str:
    cells = (
        cell.ljust(width) if i < n_names else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _seconds(s: float) -> str:
    """Three digits and a unit: `120 µs`, `1.20 ms`."""
    if math.isnan(s):
        return "–"
    if s >= 120:
        return f"{s / 60:,.0f} min"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if s * scale >= 1:
            return f"{_digits(s * scale)} {unit}"
    return f"{_digits(s * 1e6)} µs"


def _size(n: float) -> str:
    """Bytes, in powers of a thousand: `1.23 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n} B" if unit == "B" else f"{_digits(n)} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def _digits(x: float) -> str:
    return f"{x:.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"
