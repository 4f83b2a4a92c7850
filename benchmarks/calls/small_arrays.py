"""The traffic of actors and parameter servers: small arrays of float32, and nests of them; echoes.

The figures are the p50 of single calls, its ratio to that of pickles on a bare unix socket, and its ratio to
that of the contender's own echo of an int.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.calls.contenders import grpcio_generic, ours, raw, zeromq
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import Options, pinned, take_turns
from benchmarks.harness.figures import Table, percentile, ratios, spread

INT = "int"
ELEMENTS = 1, 84, 256, 4096, 16384
NESTS = "list of 8 × 1 kB", "dicts of 20 arrays"
NAMES = (INT, *(f"{n:,}" for n in ELEMENTS), *NESTS)
CONTENDERS = [
    raw.UNIX,
    ours.UNIX,
    ours.OVER_TCP,
    zeromq.ARRAYS,
    grpcio_generic.GRPCIO,
]
ALONE_ONLY = ("zmq",)  # these contenders can send only arrays


def measure(options: Options) -> dict[str, Any]:
    seconds = options.amount(0.05, 0.005)
    by_placement = take_turns(
        CONTENDERS,
        pinned(),
        options.rounds,
        lambda pair: pair.measure(p50s, pair.contender.name in ALONE_ONLY, seconds),
    )
    return {
        placement: {
            name: {value: summary(value, turns, by_name["raw unix"]) for value in turns[0]}
            for name, turns in by_name.items()
        }
        for placement, by_name in by_placement.items()
    }


def p50s(client: Client, are_arrays: bool, seconds: float) -> dict[str, float]:
    """Return name of a value → the p50 of its calls, in µs."""
    return {
        name: p50_us(client, value, seconds)
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


def p50_us(client: Client, value: Any, seconds: float) -> float:
    call = client.call
    now = time.perf_counter
    for _ in range(20):
        call(value)
    times = []
    end = now() + seconds
    while (began := now()) < end:
        call(value)
        times.append(now() - began)
    return percentile(times, 50) * 1e6


def summary(value: str, turns: list[dict[str, float]], raw: list[dict[str, float]]) -> Any:
    own = [turn[value] for turn in turns]
    spreads = {"p50_us": spread(own), "to_raw": ratios(own, [turn[value] for turn in raw])}
    if INT in turns[0]:
        spreads["to_int"] = ratios(own, [turn[INT] for turn in turns])
    return spreads


def show(report: dict[str, Any]) -> None:
    for placement, rows in report.items():
        print()
        table = Table(placement, dict.fromkeys(NAMES, ".2f"), width=26)
        for figure, text in (("p50_us", "µs"), ("to_raw", "to raw"), ("to_int", "to its int")):
            for name, row in rows.items():
                cells = [row.get(value, {}).get(figure) for value in NAMES]
                if any(cells):
                    table.row(f"{name}, {text}", *cells)
