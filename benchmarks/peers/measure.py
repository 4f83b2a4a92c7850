"""The measurement of each peer: a blocking call of an int, and a large array there and back.

Interpreters that are older than ours read this file, too.
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
    """Measure a function that calls another process, which returns the argument; return the figures."""
    figures = {"call_us": 1e6 * median_seconds(echo, 1, CALLS)}
    if with_array:
        array = np.ones(ARRAY_BYTES // 4, np.float32)
        assert np.array_equal(echo(array), array)
        array_s = median_seconds(echo, array, ARRAY_CALLS)
        figures["array_gb_s"] = 2 * ARRAY_BYTES / array_s / 1e9
    return figures


def report(figures: dict[str, float]) -> None:
    """Print the figures, for the script that has started this one."""
    print(f"\nMEASURED {json.dumps(figures)}", flush=True)


def median_seconds(echo: Callable[[Any], Any], value: Any, calls: int) -> float:
    """Return the median of the times of these calls, after a tenth as many for warming up."""
    for _ in range(calls // 10):
        echo(value)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        echo(value)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
