"""How many items a second go through a stream, and how much more as lists of 100 in each item.

    python benchmarks/streams.py [--items N] [--rounds R] [--quick]

Between two processes over a Unix socket, one client: results that are iterators, arguments that are, of
integers and of rows of 100 bytes. All take turns; the median of the rounds, and the best.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from launchpad import courier

ROW = b"x" * 100
AT_ONCE = 100


def rows(n: int) -> Iterator[bytes]:
    for _ in range(n):
        yield ROW


def lists_of_rows(n: int) -> Iterator[list[bytes]]:
    for _ in range(n // AT_ONCE):
        yield [ROW] * AT_ONCE


def count(items: Iterable[Any]) -> int:
    return sum(1 for _ in items)


def serve(address: str) -> None:
    server = courier.Server("streams", address=address)
    for method in (rows, lists_of_rows, count):
        server.bind(method.__name__, method)
    server.bind("numbers", lambda n: iter(range(n)))
    server.start()
    server.join()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="6,000 items, 2 rounds")
    options = parser.parse_args()
    if options.quick:
        options.items, options.rounds = 6_000, 2
    n = options.items
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/s"
        server = multiprocessing.get_context("fork").Process(target=serve, args=(address,))
        server.start()
        client: Any = courier.Client(address)
        ways: dict[str, Callable[[], int]] = {
            "result, integers": lambda: count(client.numbers(n)),
            "result, rows": lambda: count(client.rows(n)),
            "result, lists of rows": lambda: count(client.lists_of_rows(n)) * AT_ONCE,
            "argument, integers": lambda: client.count(iter(range(n))),
            "argument, rows": lambda: client.count(rows(n)),
            "argument, lists of rows": lambda: client.count(lists_of_rows(n)) * AT_ONCE,
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, run in ways.items():
                began = time.perf_counter()
                assert run() == n
                rates[way].append(n / (time.perf_counter() - began))
        courier.close(client)
        server.kill()
        server.join()
    for way, each in rates.items():
        print(f"{way:24} {statistics.median(each):12,.0f} items/s   (best {max(each):,.0f})")


if __name__ == "__main__":
    main()
