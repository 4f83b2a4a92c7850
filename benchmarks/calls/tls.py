"""Large arrays over TLS, one way: GB/s, beside those of Python's own TLS sockets.

up      the array is the argument of a call, whose result is a number
down    the array is the result of a call, whose argument is a number
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
from benchmarks.calls.pairs import UNPINNED, Options, summaries, take_turns, unpinned
from benchmarks.harness.figures import Table

MIB = 2**20
SIZE = 256 * MIB
UNCOUNTED = 1  # calls each way: during the first ones the system has to find the memory
COUNTED = 3
WAYS = ("up", "down")


@contextmanager
def connect(place: ours.Place) -> Iterator[Client]:
    """Give a client that sends an array and gets its size, or sends a size and gets an array."""
    with ours.connected(place) as client:

        def call(value: Any) -> Any:
            return client.ones(value) if isinstance(value, int) else client.size(value)

        yield Client(call)


CONTENDERS = [raw_tls.ARRAYS, replace(ours.OVER_TLS, connect=connect)]


def measure(options: Options) -> dict[str, Any]:
    size = options.amount(SIZE, MIB)
    turns = take_turns(
        CONTENDERS, unpinned(), options.rounds, lambda pair: pair.measure(gb_per_s, size)
    )[UNPINNED]
    return summaries(turns, {f"{way}_to_raw": (way, raw_tls.ARRAYS.name) for way in WAYS})


def gb_per_s(client: Client, size: int) -> dict[str, float]:
    import numpy as np

    array = np.ones(size // 4, dtype=np.float32)
    values = {"up": array, "down": array.nbytes}
    return {way: size / seconds(client, values[way]) / 1e9 for way in WAYS}


def seconds(client: Client, value: Any) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(UNCOUNTED + COUNTED):
        began = time.perf_counter()
        result = client.call(value)
        times.append(time.perf_counter() - began)
        del result
    return statistics.median(times[UNCOUNTED:])


def show(report: dict[str, Any]) -> None:
    print()
    heads = [f"{way}{suffix} (range)" for way in WAYS for suffix in ("", " to raw")]
    table = Table("256 MiB, GB/s", dict.fromkeys(heads, ".2f"))
    for name, row in report.items():
        table.row(name, *(row[way + suffix] for way in WAYS for suffix in ("", "_to_raw")))
