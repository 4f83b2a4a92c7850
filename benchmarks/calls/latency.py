"""One int, there and back, one call at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.calls.contenders import (
    grpcio_generic,
    ours,
    raw,
    raw_threads,
    uvloop_protocol,
    zeromq,
)
from benchmarks.calls.contenders.contender import Client, Contender
from benchmarks.calls.pairs import Options, placements, summaries, take_turns
from benchmarks.harness.figures import Table, percentile

CONTENDERS = [
    raw.UNIX,
    raw.TCP,
    ours.UNIX,
    ours.GUARDED,  # with a token, and a deadline for every call; counters are on in all of them
    ours.OVER_TCP,
    ours.OVER_TLS,
    Contender("raw threads", ours.serve_nothing, raw_threads.connect),
    ours.IN_PROCESS,
    uvloop_protocol.UVLOOP,
    zeromq.REQ_REP,
    grpcio_generic.GRPCIO,
]
PERCENTILES = {"p50": 50, "p99": 99, "p999": 99.9}


def measure(options: Options) -> dict[str, Any]:
    seconds = options.amount(0.15, 0.02)
    by_placement = take_turns(
        CONTENDERS, placements(), options.rounds, lambda pair: pair.measure(percentiles, seconds)
    )
    to_raw = {f"{name}_to_raw": (f"{name}_us", "raw unix") for name in PERCENTILES}
    return {placement: summaries(turns, to_raw) for placement, turns in by_placement.items()}


def percentiles(client: Client, seconds: float) -> dict[str, float]:
    assert client.time_calls is not None
    client.time_calls(seconds / 5)  # to warm up
    times = client.time_calls(seconds)
    return {f"{name}_us": percentile(times, percent) * 1e6 for name, percent in PERCENTILES.items()}


def show(report: dict[str, Any]) -> None:
    columns = {
        "p50 µs (range)": ",.1f",
        "to raw (range)": ",.2f",
        "p99 µs": ",.1f",
        "p99 to raw": ",.2f",
        "p99.9 µs": ",.1f",
        "p99.9 to raw": ",.2f",
    }
    for placement, rows in report.items():
        print()
        table = Table(placement, columns)
        for name, row in rows.items():
            table.row(
                name,
                *(
                    row[f"{percent}{suffix}"]
                    for percent in PERCENTILES
                    for suffix in ("_us", "_to_raw")
                ),
            )
