"""Calls of a server that runs them one at a time, in one thread, beside those of an ordinary one.

Every caller is a thread of one other process, with a client of its own. Prints the median of what a call
takes, and how many calls a second all of them make; exits with 1 if two calls ever ran at once.

Run: python benchmarks/one_at_a_time.py [--callers 1 100 1000] [--calls=20000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from typing import Any

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


def call(address: str, n_callers: int, n_calls: int, results: Any) -> None:
    """In the other process: puts the median of a call in seconds, and calls a second."""
    seconds: list[float] = []

    def call_often() -> None:
        client = courier.Client[Any](address)
        for _ in range(n_calls):
            began = time.perf_counter()
            client.add()
            seconds.append(time.perf_counter() - began)
        courier.close(client)

    threads = [threading.Thread(target=call_often) for _ in range(n_callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((statistics.median(seconds), len(seconds) / (time.perf_counter() - began)))


def measure(n_callers: int, n_calls: int, one_thread: OneThread | None) -> tuple[float, float, int]:
    """The median of a call, calls a second, and how many calls ran at once at most."""
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        server = courier.Server(address=f"unix:{folder}/socket", one_thread=one_thread)
        server.bind_object(counter)
        server.start()
        processes = multiprocessing.get_context("spawn")
        results = processes.Queue()
        arguments = server.address, n_callers, n_calls, results
        callers = processes.Process(target=call, args=arguments)
        callers.start()
        median_s, per_second = results.get()
        callers.join()
        server.stop()
    return median_s, per_second, counter.most_inside


def measure_one_thread(n_callers: int, n_calls: int) -> tuple[float, float, int]:
    """Measures the same with calls that run in one thread."""
    one_thread = OneThread()
    runner = threading.Thread(target=one_thread.run)
    runner.start()
    try:
        return measure(n_callers, n_calls, one_thread)
    finally:
        one_thread.end()
        runner.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--calls", type=int, default=20_000, help="of all callers together")
    options = parser.parse_args()
    most = 0
    print(f"{'callers':>8} {'ordinary':>20} {'one at a time':>20} {'ratio':>6}")
    for n_callers in options.callers:
        n_calls = max(1, options.calls // n_callers)
        ordinary: list[tuple[float, float, int]] = []
        in_turn: list[tuple[float, float, int]] = []
        for _ in range(ROUNDS):
            ordinary.append(measure(n_callers, n_calls, None))
            in_turn.append(measure_one_thread(n_callers, n_calls))
        most = max(most, *(at_once for _, _, at_once in in_turn))
        cells = []
        medians = []
        for runs in (ordinary, in_turn):
            medians.append(statistics.median(seconds for seconds, _, _ in runs))
            per_second = statistics.median(rate for _, rate, _ in runs)
            cells.append(f"{medians[-1] * 1e6:,.1f} µs, {per_second:,.0f}/s")
        print(f"{n_callers:>8} {cells[0]:>20} {cells[1]:>20} {medians[1] / medians[0]:>6.1f}")
    print(f"calls that ran at once, where they are to run one at a time: {most}")
    return 0 if most == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
