"""The measurement of each peer: a blocking call with an int, and one that returns a large array.

Interpreters that are older than ours run this file, too.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS = 3000
ARRAY_CALLS = 20
ARRAY_BYTES = 16 * 1024 * 1024


def measure(echo: Callable[[Any], Any], with_array: bool = True) -> dict[str, float]:
    """Return the figures of `echo`, a function that calls another process, which returns the argument."""
    figures = {"call_us": 1e6 * median_seconds(echo, 1, CALLS)}
    if with_array:
        array = np.ones(ARRAY_BYTES // 4, np.float32)
        assert np.array_equal(echo(array), array)
        array_s = median_seconds(echo, array, ARRAY_CALLS)
        figures["array_gb_s"] = 2 * ARRAY_BYTES / array_s / 1e9
    return figures


def report(figures: dict[str, float]) -> None:
    """Print the figures for the script that started this one."""
    print(f"\nMEASURED {json.dumps(figures)}", flush=True)


def median_seconds(echo: Callable[[Any], Any], value: Any, calls: int) -> float:
    """Return the median time of `calls` calls, after a tenth as many to warm up."""
    for _ in range(calls // 10):
        echo(value)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        echo(value)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
