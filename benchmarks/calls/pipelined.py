"""20,000 calls of one client in flight at once: calls/s from the first call to the last answer."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import (
    batched,
    grpcio_generic,
    ours,
    uvloop_protocol,
    zeromq,
)
from benchmarks.calls.contenders.timing import CallAll
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import pinned
from benchmarks.calls.rates import rates_and_ratios, show_rates
from benchmarks.calls.turns import take_turns

CALLS = 20_000
BASE = "raw batched"
CONTENDERS = [
    Contender(BASE, batched.serve, batched.connect_all_at_once),
    Contender("courier", ours.serve_unix, ours.connect_all_at_once),
    Contender("courier tcp", ours.serve_tcp, ours.connect_all_at_once, ours.cannot_serve(ours.TCP)),
    Contender("courier in-process", ours.serve_nothing, ours.connect_all_at_once, share=0.2),
    Contender(
        "uvloop", uvloop_protocol.serve, uvloop_protocol.connect_all_at_once, needs("uvloop")
    ),
    Contender("zmq dealer", zeromq.serve_router, zeromq.connect_all_at_once, needs("zmq")),
    Contender(
        # Beyond about 1,000 at once, grpcio cancels some of them now and then.
        "grpcio",
        grpcio_generic.serve,
        grpcio_generic.connect_all_at_once,
        needs("grpc"),
        share=0.05,
    ),
]


def measure(options: Options) -> dict[str, Any]:
    calls = options.amount(CALLS, 200)
    found = take_turns(
        available(CONTENDERS), pinned(), options.rounds, lambda pair: one_turn(pair, calls)
    )
    return {where: rates_and_ratios(rates, [BASE, "uvloop"]) for where, rates in found.items()}


def one_turn(pair: Pair, calls: int) -> float:
    found: float = pair.measure(calls_per_s, int(calls * pair.contender.share))
    return found


def calls_per_s(call_all: CallAll, n: int) -> float:
    """The median of three bursts, after a small one."""
    call_all(n // 10)
    times = sorted(seconds(call_all, n) for _ in range(3))
    return n / times[1]


def seconds(call_all: CallAll, n: int) -> float:
    began = time.perf_counter()
    kept = call_all(n)
    took = time.perf_counter() - began
    del kept  # to free 20,000 futures takes a while, too
    return took


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        show_rates(where, rows)
