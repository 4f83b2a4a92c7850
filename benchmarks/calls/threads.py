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
from benchmarks.calls.placement import pinned
from benchmarks.calls.rates import rates_and_ratios, show_rates
from benchmarks.calls.turns import take_turns

CALLERS = (4, 16)
LOCKED, OWN = "raw locked", "raw own sockets"
CONTENDERS = [
    Contender(LOCKED, raw.serve_unix, raw.connect_locked),
    Contender(OWN, raw.serve_unix, raw.connect_each_thread),
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
        available(CONTENDERS), pinned(), options.rounds, lambda pair: one_turn(pair, seconds)
    )
    return {
        f"{callers} threads": {
            where: rates_and_ratios(
                {name: [turn[i] for turn in turns] for name, turns in by_name.items()},
                [LOCKED, OWN],
            )
            for where, by_name in found.items()
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
    for callers, by_placement in report.items():
        for where, rows in by_placement.items():
            show_rates(f"{callers}, {where}", rows)
