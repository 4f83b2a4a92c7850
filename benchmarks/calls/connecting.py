"""From nothing to a new client's first answer, each time a new connection."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import grpcio_generic, ours
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import unpinned
from benchmarks.calls.spread import spread, with_range
from benchmarks.calls.turns import take_turns

CONTENDERS = [
    Contender("courier", ours.serve_unix, ours.connect_anew),
    Contender("courier tcp", ours.serve_tcp, ours.connect_anew, ours.cannot_serve(ours.TCP)),
    Contender("courier tls", ours.serve_tls, ours.connect_anew, ours.cannot_serve_tls),
    Contender("grpcio", grpcio_generic.serve, grpcio_generic.connect_anew, needs("grpc")),
]


def measure(options: Options) -> dict[str, Any]:
    times = options.amount(40, 3)
    found = take_turns(
        available(CONTENDERS), unpinned(), options.rounds, lambda pair: one_turn(pair, times)
    )
    (by_name,) = found.values()
    return {
        name: {
            "first_ms": spread([first for first, _ in turns]),
            "set_up_ms": spread([usual for _, usual in turns]),
        }
        for name, turns in by_name.items()
    }


def one_turn(pair: Pair, times: int) -> tuple[float, float]:
    found: tuple[float, float] = pair.measure(set_ups_ms, times)
    return found


def set_ups_ms(set_up: Callable[[], Any], times: int) -> tuple[float, float]:
    """The process's first one, and the median of all."""
    found = [one_set_up_ms(set_up) for _ in range(times)]
    return found[0], statistics.median(found)


def one_set_up_ms(set_up: Callable[[], Any]) -> float:
    began = time.perf_counter()
    with set_up():
        return (time.perf_counter() - began) * 1e3


def show(report: dict[str, Any]) -> None:
    print(f"\n{'':20}{'ms':>11}{'(range)':>22}{'the first, ms':>14}")
    for name, row in report.items():
        print(f"{name:20}{with_range(row['set_up_ms'], 2)}{row['first_ms']['median']:14.1f}")
