"""Calls of a server that runs them one at a time, in one thread, beside those of an ordinary one.

Every caller is a thread of one other process, with a client of its own. Prints the median of what a call
takes, and how many calls a second all of them make; exits with 1 if two calls ever ran at once.

Run: python benchmarks/one_at_a_time.py [--callers 1 100 1000] [--calls=20000]
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from functools import partial
from typing import Any

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns
from benchmarks.harness.processes import apart, run_threads
from launchpad import courier
from launchpad.courier.server.one_thread import OneThread

ROUNDS = 5


class Counter:
    """Counts its calls, and how many are in it at once."""

    def __init__(self) -> None:
        self.n = 0
        self.n_inside = 0
        self.most_inside = 0

    def add(self) -> int:
        self.n_inside += 1
        self.most_inside = max(self.most_inside, self.n_inside)
        self.n += 1
        self.n_inside -= 1
        return self.n


def call(address: str, n_callers: int, n_calls: int) -> tuple[float, float]:
    """Call from another process; return the median of a call in seconds, and calls a second."""
    seconds: list[float] = []

    def call_often() -> None:
        client = courier.Client[Any](address)
        for _ in range(n_calls):
            began = time.perf_counter()
            client.add()
            seconds.append(time.perf_counter() - began)
        courier.close(client)

    began = time.perf_counter()
    run_threads(*[call_often] * n_callers)
    return statistics.median(seconds), len(seconds) / (time.perf_counter() - began)


def measure(n_callers: int, n_calls: int, one_thread: OneThread | None) -> tuple[float, float, int]:
    """Return the median of a call, calls a second, and how many calls ran at once at most."""
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        server = courier.Server(address=f"unix:{folder}/socket", one_thread=one_thread)
        server.bind_object(counter)
        server.start()
        median_s, per_second = apart(call, server.address, n_callers, n_calls)
        server.stop()
    return median_s, per_second, counter.most_inside


def measure_one_thread(n_callers: int, n_calls: int) -> tuple[float, float, int]:
    """Measure the same with calls that run in one thread."""
    one_thread = OneThread()
    runner = threading.Thread(target=one_thread.run)
    runner.start()
    try:
        return measure(n_callers, n_calls, one_thread)
    finally:
        one_thread.end()
        runner.join()


def main() -> None:
    options = Parser(__doc__, callers=[1, 100, 1000], calls=20_000).parse_args()
    most = 0
    heads = {"ordinary µs": ",.1f", "ordinary, calls/s": ",.0f", "one at a time µs": ",.1f"}
    table = Table("callers", {**heads, "one at a time, calls/s": ",.0f", "ratio": ".1f"}, width=8)
    for n_callers in options.callers:
        n_calls = max(1, options.calls // n_callers)  # of all callers together
        ways = {
            "ordinary": partial(measure, n_callers, n_calls, None),
            "one at a time": partial(measure_one_thread, n_callers, n_calls),
        }
        runs = in_turns(ways, ROUNDS)
        most = max(most, *(at_once for _, _, at_once in runs["one at a time"]))
        (us, rate), (us_in_turn, rate_in_turn) = (
            (
                1e6 * statistics.median(seconds for seconds, _, _ in each),
                statistics.median(rate for _, rate, _ in each),
            )
            for each in runs.values()
        )
        table.row(n_callers, us, rate, us_in_turn, rate_in_turn, us_in_turn / us)
    print(f"calls that ran at once, where they are to run one at a time: {most}")
    finish(options, {}, [] if most == 1 else [f"{most} calls ran at once"])


if __name__ == "__main__":
    main()
