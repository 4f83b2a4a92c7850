"""One int, there and back, one call at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import (
    grpcio_generic,
    ours,
    raw,
    raw_threads,
    uvloop_protocol,
    zeromq,
)
from benchmarks.calls.contenders.timing import TimeCalls
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import placements
from benchmarks.calls.spread import ratios, spread, with_range
from benchmarks.calls.turns import take_turns

CONTENDERS = [
    Contender("raw unix", raw.serve_unix, raw.connect_one_by_one),
    Contender("raw tcp", raw.serve_tcp, raw.connect_tcp_one_by_one),
    Contender("courier", ours.serve_unix, ours.connect_one_by_one),
    # With a token, and a deadline for every call; counters are on in all of them.
    Contender("courier guarded", ours.serve_guarded, ours.connect_one_by_one),
    Contender("courier tcp", ours.serve_tcp, ours.connect_one_by_one, ours.cannot_serve(ours.TCP)),
    Contender("courier tls", ours.serve_tls, ours.connect_one_by_one, ours.cannot_serve_tls),
    Contender("raw threads", ours.serve_nothing, raw_threads.connect_one_by_one),
    Contender("courier in-process", ours.serve_nothing, ours.connect_one_by_one),
    Contender("uvloop", uvloop_protocol.serve, uvloop_protocol.connect_one_by_one, needs("uvloop")),
    Contender("zmq req/rep", zeromq.serve_rep, zeromq.connect_one_by_one, needs("zmq")),
    Contender("grpcio", grpcio_generic.serve, grpcio_generic.connect_one_by_one, needs("grpc")),
]


def measure(options: Options) -> dict[str, Any]:
    seconds = 0.02 if options.quick else 0.15
    found = take_turns(
        available(CONTENDERS), placements(), options.rounds, lambda pair: one_turn(pair, seconds)
    )
    return {
        where: {name: summary(turns, each["raw unix"]) for name, turns in each.items() if turns}
        for where, each in found.items()
    }


Percentiles = tuple[float, float, float]


def one_turn(pair: Pair, seconds: float) -> Percentiles:
    """p50, p99 and p99.9 of single calls, in µs."""
    found: Percentiles = pair.measure(percentiles, seconds)
    return found


def percentiles(time_calls: TimeCalls, seconds: float) -> Percentiles:
    time_calls(seconds / 5)  # to warm up
    times = sorted(time_calls(seconds))
    p50, p99, p999 = (times[len(times) * n // 1000] * 1e6 for n in (500, 990, 999))
    return p50, p99, p999


def summary(turns: list[Percentiles], raw: list[Percentiles]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    columns = zip(zip(*turns, strict=True), zip(*raw, strict=True), strict=True)
    for name, (own, base) in zip(("p50", "p99", "p999"), columns, strict=True):
        found |= {f"{name}_us": spread(own), f"{name}_to_raw": ratios(own, base)}
    return found


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        print(
            f"\n{where:20}{'p50 µs':>11}{'(range)':>22}{'to raw':>11}{'(range)':>22}"
            f"{'p99 µs':>9}{'to raw':>9}{'p99.9 µs':>10}{'to raw':>9}"
        )
        for name, row in rows.items():
            print(
                f"{name:20}{with_range(row['p50_us'])}{with_range(row['p50_to_raw'], 2)}"
                f"{row['p99_us']['median']:9.1f}{row['p99_to_raw']['median']:9.2f}"
                f"{row['p999_us']['median']:10.1f}{row['p999_to_raw']['median']:9.2f}"
            )
