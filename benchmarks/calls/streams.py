"""Small items of streams a second, both ways; and how late one is that comes alone, beside a call.

integers, rows       from a plain generator to a plain `for`; a row has 100 bytes
lists of rows        100 rows in each list, counted as rows
async generator      integers from an async generator to a plain `for`
async for            integers from a plain generator to a consumer on an event loop
calls                one call for each integer, one after the other
a lone item          the time until the consumer has an item that the generator gives after a pause. Beside
                     it is the time of a call after the same pause: for `async for` an awaited call, or a
                     call of a coroutine

All ways take turns between two processes. A ratio compares figures of the same round.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.contenders.contender import Contender
from benchmarks.calls.pairs import Options, take_turns, unpinned
from benchmarks.harness.figures import Table, ratios, spread
from launchpad import courier

ROW = b"x" * 100
AT_ONCE = 100
PAUSE_S = 0.003
CALLS = "calls"
BESIDE = {
    "call": "call",
    "result": "call",
    "argument": "call",
    "awaited call": "awaited call",
    "result, async for": "awaited call",
    "call of a coroutine": "call of a coroutine",
    "argument, async for": "call of a coroutine",
}
SMALL = ("integers", "rows", "async generator", "async for")  # our promises are about these


def numbers(n: int) -> Iterator[int]:
    yield from range(n)


async def numbers_async(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def rows(n: int) -> Iterator[bytes]:
    for _ in range(n):
        yield ROW


def lists_of_rows(n: int) -> Iterator[list[bytes]]:
    for _ in range(n // AT_ONCE):
        yield [ROW] * AT_ONCE


def times(n: int) -> Iterator[float]:
    """Yield the current time after each pause."""
    for _ in range(n):
        time.sleep(PAUSE_S)
        yield time.perf_counter()


def count(items: Iterable[Any]) -> int:
    return sum(1 for _ in items)


async def count_async(items: Any) -> int:
    n = 0
    async for _ in items:
        n += 1
    return n


def delays(items: Iterable[float]) -> list[float]:
    """Return the delay of each item. All processes of a machine have the same clock."""
    return [time.perf_counter() - given_at for given_at in items]


async def echo_async(value: Any) -> Any:
    return value


async def delays_async(items: Any) -> list[float]:
    return [time.perf_counter() - given_at async for given_at in items]


METHODS = (
    numbers,
    numbers_async,
    rows,
    lists_of_rows,
    times,
    count,
    count_async,
    delays,
    delays_async,
    echo_async,
    ours.echo,
)


def serve(path: str, pipe: Connection) -> None:
    server = courier.Server("streams", address=f"unix:{path}")
    for method in METHODS:
        server.bind(method.__name__, method)
    server.start()
    pipe.send(ours.Place(server.address))
    server.join()


CONTENDERS = [Contender("courier", serve, ours.connected)]


def measure(options: Options) -> dict[str, Any]:
    n = options.amount(100_000, 2_000)
    n_lone = options.amount(60, 5)
    by_placement = take_turns(
        CONTENDERS, unpinned(), options.rounds, lambda pair: pair.measure(time_all, n, n_lone)
    )
    rounds: list[dict[str, dict[str, float]]] = by_placement["unpinned"]["courier"]
    calls_per_s = [turn["items_per_s"][CALLS] for turn in rounds]
    delays_us = by_way(rounds, "delay_us")
    rates = {
        way: {"items_per_s": spread(values), "to_calls": ratios(values, calls_per_s)}
        for way, values in by_way(rounds, "items_per_s").items()
    }
    lone = {
        way: {"us": spread(values), "to_call": ratios(values, delays_us[BESIDE[way]])}
        for way, values in delays_us.items()
    }
    small = [row for way, row in rates.items() if way.partition(", ")[2] in SMALL]
    return {
        "rates": rates,
        "delays": lone,
        "least_items_per_s": min(row["items_per_s"]["median"] for row in small),
        "least_to_calls": min(row["to_calls"]["median"] for row in small),
        "worst_to_call": max(
            row["to_call"]["median"] for way, row in lone.items() if way != BESIDE[way]
        ),
    }


def by_way(rounds: list[dict[str, dict[str, float]]], figure: str) -> dict[str, list[float]]:
    return {way: [turn[figure][way] for turn in rounds] for way in rounds[0][figure]}


def time_all(client: Any, n: int, n_lone: int) -> dict[str, dict[str, float]]:
    rates = {}
    late = {}
    for way, run in ways(client).items():
        run_n(run, way, n // 10)
        rates[way] = run_n(run, way, n)
    for way, find in lone_ways(client).items():
        late[way] = statistics.median(find(n_lone)) * 1e6
    return {"items_per_s": rates, "delay_us": late}


def run_n(run: Callable[[int], int], way: str, n: int) -> float:
    """Return items a second. For calls, `n` is divided by ten, because they take long."""
    n = n // 10 if way == CALLS else n
    began = time.perf_counter()
    n_items = run(n)
    took = time.perf_counter() - began
    assert n_items == n, (way, n_items, n)
    return n / took


def ways(client: Any) -> dict[str, Callable[[int], int]]:
    return {
        CALLS: lambda n: count(map(client.echo, range(n))),
        "result, integers": lambda n: count(client.numbers(n)),
        "result, rows": lambda n: count(client.rows(n)),
        "result, lists of rows": lambda n: count(client.lists_of_rows(n)) * AT_ONCE,
        "result, async generator": lambda n: count(client.numbers_async(n)),
        "result, async for": lambda n: asyncio.run(count_async(client.aio.numbers(n))),
        "argument, integers": lambda n: client.count(numbers(n)),
        "argument, rows": lambda n: client.count(rows(n)),
        "argument, lists of rows": lambda n: client.count(lists_of_rows(n)) * AT_ONCE,
        "argument, async generator": lambda n: client.count(numbers_async(n)),
        "argument, async for": lambda n: client.count_async(numbers(n)),
    }


def lone_ways(client: Any) -> dict[str, Callable[[int], list[float]]]:
    return {
        "call": lambda n: lone_calls(client.echo, n),
        "awaited call": lambda n: asyncio.run(lone_calls_async(client.aio.echo, n)),
        "call of a coroutine": lambda n: lone_calls(client.echo_async, n),
        "result": lambda n: delays(client.times(n)),
        "result, async for": lambda n: asyncio.run(delays_async(client.aio.times(n))),
        "argument": lambda n: client.delays(times(n)),
        "argument, async for": lambda n: client.delays_async(times(n)),
    }


def lone_calls(call: Callable[[float], Any], n: int) -> list[float]:
    delays_s = []
    for began in times(n):
        call(began)
        delays_s.append(time.perf_counter() - began)
    return delays_s


async def lone_calls_async(call: Callable[[float], Any], n: int) -> list[float]:
    delays_s = []
    for _ in range(n):
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        await call(began)
        delays_s.append(time.perf_counter() - began)
    return delays_s


def show(report: dict[str, Any]) -> None:
    print()
    table = Table("", {"items/s (range)": ",.0f", "to calls (range)": ",.1f"}, width=28)
    for way, row in report["rates"].items():
        table.row(way, row["items_per_s"], row["to_calls"])
    print()
    table = Table("after a pause", {"µs (range)": ",.1f", "to a call (range)": ",.2f"}, width=28)
    for way, row in report["delays"].items():
        table.row(way, row["us"], row["to_call"])
