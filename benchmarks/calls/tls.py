"""Large arrays over TLS, one way: GB/s, beside those of Python's own TLS sockets and of plaintext.

up      the array is the argument of a call, whose result is a number
down    the array is the result of a call, whose argument is a number

On a busy machine, GB/s depend on the share of the cores that the two processes get. The CPU time of both
together for each GB hardly does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.calls.contenders import ours, raw_tls
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import UNPINNED, Options, Pair, summaries, take_turns, unpinned
from benchmarks.harness.figures import Table
from benchmarks.harness.holdings import cpu_s

MIB = 2**20
SIZE = 256 * MIB
UNCOUNTED = 1  # calls each way: during the first one the system has to find the memory
COUNTED = 3
WAYS = ("up", "down")


@contextmanager
def connect(place: ours.Place) -> Iterator[Client]:
    """Give a client that sends an array and gets its size, or sends a size and gets an array."""
    with ours.connected(place) as client:

        def call(value: Any) -> Any:
            return client.ones(value) if isinstance(value, int) else client.size(value)

        yield Client(call)


CONTENDERS = [
    raw_tls.ARRAYS,
    replace(ours.OVER_TLS, connect=connect),
    replace(ours.OVER_TCP, connect=connect),
]


def measure(options: Options) -> dict[str, Any]:
    size = options.amount(SIZE, MIB)

    def one_turn(pair: Pair) -> dict[str, float]:
        return pair.measure(both_ways, size, [pair.client.pid, pair.server.pid])  # type: ignore[no-any-return]

    turns = take_turns(CONTENDERS, unpinned(), options.rounds, one_turn)[UNPINNED]
    return summaries(turns, {f"{way}_to_raw": (way, raw_tls.ARRAYS.name) for way in WAYS})


def both_ways(client: Client, size: int, pids: list[int]) -> dict[str, float]:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    return one_way("up", client, array, size, pids) | one_way("down", client, size, size, pids)


def one_way(way: str, client: Client, value: Any, size: int, pids: list[int]) -> dict[str, float]:
    """Return the GB/s of calls with `value`, and the CPU time of the processes for each GB."""
    for _ in range(UNCOUNTED):
        client.call(value)
    cpu_before_s = sum(map(cpu_s, pids))
    times = []
    for _ in range(COUNTED):
        began = time.perf_counter()
        result = client.call(value)
        times.append(time.perf_counter() - began)
        del result
    used_s = sum(map(cpu_s, pids)) - cpu_before_s
    gb = size / 1e9
    return {way: gb / statistics.median(times), f"{way}_cpu_s": used_s / (COUNTED * gb)}


def show(report: dict[str, Any]) -> None:
    print()
    columns: dict[str, str] = {}
    for way in WAYS:
        heads = (f"{way}, GB/s (range)", f"{way} to raw (range)", f"{way}, CPU s/GB")
        columns |= dict.fromkeys(heads, ".2f")
    table = Table("256 MiB", columns)
    for name, row in report.items():
        table.row(
            name, *(row[way + suffix] for way in WAYS for suffix in ("", "_to_raw", "_cpu_s"))
        )
