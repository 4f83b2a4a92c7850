"""The measurement of each peer: a blocking call of an int, and a large array there and back."""

from __future__ import annotations

import json
import statistics
import time

import numpy as np

CALLS = 3000
ARRAY_CALLS = 20
ARRAY_BYTES = 16 * 1024 * 1024


def measure(echo, with_array=True):
    """Measure a function that calls another process, which returns the argument; return the figures.

    Without annotations: an interpreter that is older than ours reads this file, too.
    """
    figures = {"call_us": 1e6 * median_seconds(echo, 1, CALLS)}
    if with_array:
        array = np.ones(ARRAY_BYTES // 4, np.float32)
        assert np.array_equal(echo(array), array)
        array_s = median_seconds(echo, array, ARRAY_CALLS)
        figures["array_gb_s"] = 2 * ARRAY_BYTES / array_s / 1e9
    return figures


def report(figures):
    """Print the figures, for the script that has started this one."""
    print(f"\nMEASURED {json.dumps(figures)}", flush=True)


def median_seconds(echo, value, calls):
    """Return the median of the times of these calls, after a tenth as many for warming up."""
    for _ in range(calls // 10):
        echo(value)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        echo(value)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
