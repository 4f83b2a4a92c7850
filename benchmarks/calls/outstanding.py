"""100,000 futures of one client outstanding at once: errors, time, and memory of both sides."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.calls import memory
from benchmarks.calls.contender import Contender, available
from benchmarks.calls.contenders import ours
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import unpinned
from benchmarks.calls.turns import take_turns

FUTURES = 100_000
MIB = 2**20
CONTENDERS = [
    Contender("courier", ours.serve_unix, ours.connect_submit),
    Contender("courier tcp", ours.serve_tcp, ours.connect_submit, ours.cannot_serve(ours.TCP)),
    Contender("courier in-process", ours.serve_nothing, ours.connect_submit),
]


def measure(options: Options) -> dict[str, Any]:
    n = options.amount(FUTURES, 1000)
    found = take_turns(available(CONTENDERS), unpinned(), 1, lambda pair: one_turn(pair, n))
    (by_name,) = found.values()
    return {name: turn for name, (turn,) in by_name.items()}


def one_turn(pair: Pair, n: int) -> dict[str, float]:
    pids = (pair.client.pid, pair.server.pid)
    before = [memory.resident(pid) for pid in pids]
    seconds, errors = pair.measure(submit_all, n)
    grown = [memory.resident_peak(pid) - was for pid, was in zip(pids, before, strict=True)]
    return {
        "futures": n,
        "errors": errors,
        "seconds": seconds,
        "client_mib": grown[0] / MIB,
        "server_mib": grown[1] / MIB,
    }


def submit_all(submit: Call, n: int) -> tuple[float, int]:
    began = time.perf_counter()
    futures = [submit(i) for i in range(n)]
    errors = sum(
        future.exception(60) is not None or future.result() != i for i, future in enumerate(futures)
    )
    return time.perf_counter() - began, errors


def show(report: dict[str, Any]) -> None:
    print(f"\n{'':20}{'errors':>8}{'seconds':>9}{'client +MiB':>13}{'server +MiB':>13}")
    for name, row in report.items():
        print(
            f"{name:20}{row['errors']:8,}{row['seconds']:9.2f}"
            f"{row['client_mib']:13.1f}{row['server_mib']:13.1f}"
        )
