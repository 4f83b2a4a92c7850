"""Futures and broadcast of large arrays, beside blocking calls: the time of the same calls, to theirs.

one future        make it, and wait for it                beside a blocking call
8 futures         make all, then wait for all             beside 8 blocking calls, one after the other
broadcast         to 3 servers, each a process            beside a blocking call of each, one after the other

`push` sends an array as argument; `echo` also returns it. All ways take turns in one process, call by call.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.pairs import Options, ask_client, start_client
from benchmarks.harness.figures import Table, in_turns, spread, timed
from benchmarks.harness.processes import Worker
from launchpad import courier

MB = 10**6
SIZES = {"1 MB": MB, "4 MB": 4 * MB, "16 MB": 16 * MB}
TURNS = {"1 MB": 200, "4 MB": 80, "16 MB": 25}
METHODS = {"push": "size", "echo": "echo"}
SERVERS = 3
AT_ONCE = 8
UNCOUNTED = 3  # turns: these open connections, and the system has to find the memory
BASES = {"one future": "call", "8 futures": "8 calls", "broadcast": "3 calls"}

Way = Callable[[], Any]


def measure(options: Options) -> dict[str, Any]:
    sizes = [*SIZES][: options.amount(len(SIZES), 1)]
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(options.rounds):
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            paths = [f"{directory}/{i}" for i in range(SERVERS)]
            servers = [Worker(stack, ours.serve_unix, path) for path in paths]
            client = start_client(stack, connect, [server.hear() for server in servers])
            rounds.append(ask_client(client, time_all, sizes, options.amount(10**9, 3)))
    return {way: of_rounds(rounds, way, base) for way, base in BASES.items()}


def of_rounds(rounds: list[dict[str, dict[str, float]]], way: str, base: str) -> dict[str, Any]:
    rows: dict[str, Any] = {
        case: {
            "ms": spread([turn[case][way] * 1e3 for turn in rounds]),
            "blocking_ms": spread([turn[case][base] * 1e3 for turn in rounds]),
            "to_blocking": spread([turn[case][f"{way} to {base}"] for turn in rounds]),
        }
        for case in rounds[0]
    }
    return rows | {"worst_to_blocking": max(row["to_blocking"]["median"] for row in rows.values())}


@contextmanager
def connect(places: list[ours.Place]) -> Iterator[list[courier.Client[Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ours.connected(place)) for place in places]


def time_all(
    clients: list[courier.Client[Any]], sizes: list[str], most_turns: int
) -> dict[str, dict[str, float]]:
    """Return the seconds of each way, and its ratio to the calls of the same turn, by size and operation."""
    import numpy as np

    rows: dict[str, dict[str, float]] = {}
    for size in sizes:
        array = np.full(SIZES[size] // 4, 1.5, dtype=np.float32)
        for operation, method in METHODS.items():
            timed_ways = {name: timed(way) for name, way in ways(clients, method, array).items()}
            times = in_turns(timed_ways, min(TURNS[size], most_turns), warm_up=UNCOUNTED)
            row = {name: statistics.median(seconds) for name, seconds in times.items()}
            for way, base in BASES.items():
                pairs = zip(times[way], times[base], strict=True)
                row[f"{way} to {base}"] = statistics.median(
                    way_s / base_s for way_s, base_s in pairs
                )
            rows[f"{size} {operation}"] = row
    return rows


def ways(clients: list[courier.Client[Any]], method: str, array: Any) -> dict[str, Way]:
    call = getattr(clients[0], method)
    submit = getattr(clients[0].futures, method)
    calls = [getattr(client, method) for client in clients]
    to_all = getattr(courier.broadcast(clients), method)
    return {
        "call": lambda: call(array),
        "one future": lambda: submit(array).result(),
        "8 calls": lambda: [call(array) for _ in range(AT_ONCE)],
        "8 futures": lambda: [
            future.result() for future in [submit(array) for _ in range(AT_ONCE)]
        ],
        "3 calls": lambda: [call(array) for call in calls],
        "broadcast": lambda: to_all(array),
    }


def show(report: dict[str, Any]) -> None:
    print()
    table = Table("", {"ms (range)": ",.2f", "to calls (range)": ",.2f"}, width=28)
    for way, rows in report.items():
        for case, row in rows.items():
            if isinstance(row, dict):
                table.row(f"{way:14}{case}", row["ms"], row["to_blocking"])
