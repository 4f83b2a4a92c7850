"""Several threads of one client process, each making one call at a time: calls/s of all."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.calls.contenders import batched, grpcio_generic, ours, raw, zeromq
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import Options, pinned, rates, show_rates, take_turns
from benchmarks.harness.processes import run_threads

CALLERS = (4, 16)
CONTENDERS = [
    raw.LOCKED,
    batched.RAW_BATCHED,
    ours.UNIX,
    ours.OVER_TCP,
    ours.IN_PROCESS,
    zeromq.REQ_REP,
    grpcio_generic.GRPCIO,
]


def measure(options: Options) -> dict[str, Any]:
    seconds = options.amount(0.3, 0.02)
    by_placement = take_turns(
        CONTENDERS,
        pinned(),
        options.rounds,
        lambda pair: [pair.measure(calls_per_s, callers, seconds) for callers in CALLERS],
    )
    return {
        f"{callers} threads": {
            placement: rates(
                {name: [turn[i] for turn in turns] for name, turns in by_name.items()},
                [raw.LOCKED.name],
            )
            for placement, by_name in by_placement.items()
        }
        for i, callers in enumerate(CALLERS)
    }


def calls_per_s(client: Client, callers: int, seconds: float) -> float:
    call = client.call
    spans: list[tuple[float, float, int]] = []  # of each thread: begin, end, number of calls
    barrier = threading.Barrier(callers)

    def keep_calling() -> None:
        call(0)  # connects
        barrier.wait()
        now = time.perf_counter
        begin = now()
        end = begin + seconds
        n = 0
        while now() < end:
            call(7)
            n += 1
        spans.append((begin, now(), n))

    run_threads(*[keep_calling] * callers)
    if len(spans) < callers:
        raise RuntimeError(f"{callers - len(spans)} of {callers} threads failed")
    begins, ends, counts = zip(*spans, strict=True)
    return float(sum(counts) / (max(ends) - min(begins)))


def show(report: dict[str, Any]) -> None:
    for callers, by_placement in report.items():
        for placement, rows in by_placement.items():
            show_rates(f"{callers}, {placement}", rows)
