"""200 coroutines of one client process, each awaiting one call at a time: calls/s of all."""

from __future__ import annotations

from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import ours, uvloop_protocol
from benchmarks.calls.options import Options
from benchmarks.calls.pipelined import one_turn
from benchmarks.calls.placement import pinned
from benchmarks.calls.rates import rates_and_ratios, show_rates
from benchmarks.calls.turns import take_turns

CALLS = 20_000
BASE = "uvloop"
CONTENDERS = [
    Contender(BASE, uvloop_protocol.serve, uvloop_protocol.connect_callers, needs("uvloop")),
    Contender("courier", ours.serve_unix, ours.connect_coroutines),
    Contender(
        "courier on uvloop", ours.serve_unix, ours.connect_coroutines_of_uvloop, needs("uvloop")
    ),
    Contender("courier tcp", ours.serve_tcp, ours.connect_coroutines, ours.cannot_serve(ours.TCP)),
]


def measure(options: Options) -> dict[str, Any]:
    calls = options.amount(CALLS, 1000)
    found = take_turns(
        available(CONTENDERS), pinned(), options.rounds, lambda pair: one_turn(pair, calls)
    )
    return {where: rates_and_ratios(rates, [BASE]) for where, rates in found.items()}


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        show_rates(where, rows)
