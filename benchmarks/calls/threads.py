"""Several threads of one client process, each making one call at a time: calls/s of all."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import batched, grpcio_generic, ours, raw, zeromq
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import unpinned
from benchmarks.calls.spread import ratios, spread, with_range
from benchmarks.calls.turns import take_turns

CALLERS = (4, 16)
BASE = "raw, own sockets"
CONTENDERS = [
    Contender(BASE, raw.serve_unix, raw.connect_each_thread),
    Contender("raw batched", batched.serve, batched.connect),
    Contender("courier", ours.serve_unix, ours.connect),
    Contender("courier tcp", ours.serve_tcp, ours.connect, ours.cannot_serve(ours.TCP)),
    Contender("courier in-process", ours.serve_nothing, ours.connect),
    Contender("zmq req/rep", zeromq.serve_rep, zeromq.connect_each_thread, needs("zmq")),
    Contender("grpcio", grpcio_generic.serve, grpcio_generic.connect, needs("grpc")),
]


def measure(options: Options) -> dict[str, Any]:
    seconds = 0.02 if options.quick else 0.3
    found = take_turns(
        available(CONTENDERS), unpinned(), options.rounds, lambda pair: one_turn(pair, seconds)
    )
    (by_name,) = found.values()
    return {
        f"{callers} threads": {
            name: {
                "calls_per_s": spread([turn[i] for turn in turns]),
                "to_raw": ratios([turn[i] for turn in turns], [turn[i] for turn in by_name[BASE]]),
            }
            for name, turns in by_name.items()
        }
        for i, callers in enumerate(CALLERS)
    }


def one_turn(pair: Pair, seconds: float) -> list[float]:
    return [pair.measure(calls_per_s, callers, seconds) for callers in CALLERS]


def calls_per_s(call: Call, callers: int, seconds: float) -> float:
    begins, ends, counts = [], [], []
    barrier = threading.Barrier(callers)

    def keep_calling() -> None:
        call(0)  # connects
        barrier.wait()
        now = time.perf_counter
        begin = now()
        n, end = 0, begin + seconds
        while now() < end:
            call(7)
            n += 1
        begins.append(begin)
        ends.append(now())
        counts.append(n)

    threads = [threading.Thread(target=keep_calling) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) < callers:
        raise RuntimeError(f"{callers - len(counts)} of {callers} threads failed")
    return sum(counts) / (max(ends) - min(begins))


def show(report: dict[str, Any]) -> None:
    for callers, rows in report.items():
        print(f"\n{callers:20}{'calls/s':>11}{'(range)':>22}{'to raw':>11}{'(range)':>22}")
        for name, row in rows.items():
            print(f"{name:20}{with_range(row['calls_per_s'], 0)}{with_range(row['to_raw'], 2)}")
