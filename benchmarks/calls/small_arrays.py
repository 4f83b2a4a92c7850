"""What an actor or a parameter server sends all day: small arrays of float32, and nests of them; echoes.

The p50 of single calls, its ratio to the same by pickles on a bare unix socket, and to the contender's own
echo of an int.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.calls.contender import Contender, available, needs
from benchmarks.calls.contenders import grpcio_generic, ours, raw, zeromq
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import UNPINNED, placements
from benchmarks.calls.spread import ratios, spread
from benchmarks.calls.turns import take_turns

INT = "int"
ELEMENTS = 1, 84, 256, 4096, 16384
NESTS = "list of 8 × 1 kB", "dicts of 20 arrays"
NAMES = (INT, *(f"{n:,}" for n in ELEMENTS), *NESTS)
CONTENDERS = [
    Contender("raw unix", raw.serve_unix, raw.connect_unix),
    Contender("courier", ours.serve_unix, ours.connect),
    Contender("courier tcp", ours.serve_tcp, ours.connect, ours.cannot_serve(ours.TCP)),
    Contender("zmq", zeromq.serve_arrays, zeromq.connect_arrays, needs("zmq")),
    Contender("grpcio", grpcio_generic.serve, grpcio_generic.connect, needs("grpc")),
]
ALONE_ONLY = ("zmq",)  # these send arrays, and nothing else


def measure(options: Options) -> dict[str, Any]:
    seconds = 0.005 if options.quick else 0.05
    where = [each for each in placements() if each.name != UNPINNED]
    found = take_turns(
        available(CONTENDERS), where, options.rounds, lambda pair: one_turn(pair, seconds)
    )
    return {
        placement: {
            name: {value: summary(value, turns, each["raw unix"]) for value in turns[0]}
            for name, turns in each.items()
            if turns
        }
        for placement, each in found.items()
    }


def one_turn(pair: Pair, seconds: float) -> dict[str, float]:
    found: dict[str, float] = pair.measure(p50s, pair.contender.name in ALONE_ONLY, seconds)
    return found


def p50s(call: Call, are_arrays: bool, seconds: float) -> dict[str, float]:
    """µs, by name."""
    return {
        name: p50_us(call, value, seconds)
        for name, value in values().items()
        if not are_arrays or name not in (INT, *NESTS)
    }


def values() -> dict[str, Any]:
    import numpy as np

    alone = {f"{n:,}": np.arange(n, dtype=np.float32) for n in ELEMENTS}
    small = [np.arange(64, dtype=np.float32) + i for i in range(20)]
    nested = {
        "policy": {f"layer {i}": array for i, array in enumerate(small[:10])},
        "value": {f"layer {i}": array for i, array in enumerate(small[10:])},
    }
    of_1_kb = [np.arange(256, dtype=np.float32) + i for i in range(8)]
    return {INT: 7, **alone, NESTS[0]: of_1_kb, NESTS[1]: nested}


def p50_us(call: Call, value: Any, seconds: float) -> float:
    now = time.perf_counter
    for _ in range(20):
        call(value)
    times = []
    end = now() + seconds
    while (began := now()) < end:
        call(value)
        times.append(now() - began)
    return sorted(times)[len(times) // 2] * 1e6


def summary(value: str, turns: list[dict[str, float]], raw: list[dict[str, float]]) -> Any:
    own = [turn[value] for turn in turns]
    found = {"p50_us": spread(own), "to_raw": ratios(own, [turn[value] for turn in raw])}
    if INT in turns[0]:
        found["to_int"] = ratios(own, [turn[INT] for turn in turns])
    return found


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        print(f"\n{where:14}" + "".join(f"{name:>20}" for name in NAMES))
        for figure, text in (("p50_us", "µs"), ("to_raw", "to raw"), ("to_int", "to its int")):
            for name, row in rows.items():
                cells = (
                    f"{row[value][figure]['median']:20.2f}"
                    if figure in row.get(value, {})
                    else f"{'–':>20}"
                    for value in NAMES
                )
                if any(figure in each for each in row.values()):
                    print(f"{name + ', ' + text:24}"[:24] + "".join(cells)[10:])
