"""Futures and broadcast of large arrays, beside blocking calls: the time of the same calls, to theirs.

one future        made, and waited for                    to a blocking call
8 futures         made, and then waited for               to 8 blocking calls, one after the other
broadcast         to 3 servers, each a process            to a blocking call of each, one after the other

`push` has an array as argument, `echo` as result, too. All ways take turns in one process, call by call.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Failed, be_client
from benchmarks.calls.spread import spread, with_range
from benchmarks.calls.worker import Worker
from launchpad import courier

MB = 10**6
SIZES = {"1 MB": MB, "4 MB": 4 * MB, "16 MB": 16 * MB}
TURNS = {"1 MB": 200, "4 MB": 80, "16 MB": 25}
METHODS = {"push": "size", "echo": "echo"}
SERVERS, AT_ONCE = 3, 8
UNCOUNTED = 3  # turns: connections are opened, and the system has to find the memory
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
            client = Worker(stack, be_client, connect)
            client.say([server.hear() for server in servers])
            client.hear()
            found = client.ask((time_all, (sizes, options.amount(10**9, 3))))
            if isinstance(found, Failed):
                raise found
            rounds.append(found)
    return {way: of_rounds(rounds, way, base) for way, base in BASES.items()}


def of_rounds(rounds: list[dict[str, dict[str, float]]], way: str, base: str) -> dict[str, Any]:
    rows: dict[str, Any] = {
        what: {
            "ms": spread([each[what][way] * 1e3 for each in rounds]),
            "blocking_ms": spread([each[what][base] * 1e3 for each in rounds]),
            "to_blocking": spread([each[what][f"{way} to {base}"] for each in rounds]),
        }
        for what in rounds[0]
    }
    return rows | {"worst_to_blocking": max(row["to_blocking"]["median"] for row in rows.values())}


@contextmanager
def connect(places: list[ours.Place]) -> Iterator[list[courier.Client[Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ours.connected(place)) for place in places]


def time_all(
    clients: list[courier.Client[Any]], sizes: list[str], most_turns: int
) -> dict[str, dict[str, float]]:
    """By size and method: seconds of each way, and ratios."""
    import numpy as np

    found: dict[str, dict[str, float]] = {}
    for size in sizes:
        array = np.full(SIZES[size] // 4, 1.5, dtype=np.float32)
        for what, method in METHODS.items():
            made = ways(clients, method, array)
            times: dict[str, list[float]] = {name: [] for name in made}
            for _ in range(UNCOUNTED + min(TURNS[size], most_turns)):
                for name, way in made.items():
                    began = time.perf_counter()
                    kept = way()
                    times[name].append(time.perf_counter() - began)
                    del kept
            found[f"{size} {what}"] = summary(times)
    return found


def summary(times: dict[str, list[float]]) -> dict[str, float]:
    """Medians over the turns: what each way takes, and its ratio to the calls of the same turn."""
    counted = {name: each[UNCOUNTED:] for name, each in times.items()}
    found = {name: statistics.median(each) for name, each in counted.items()}
    for way, base in BASES.items():
        pairs = zip(counted[way], counted[base], strict=True)
        found[f"{way} to {base}"] = statistics.median(took / other for took, other in pairs)
    return found


def ways(clients: list[courier.Client[Any]], method: str, array: Any) -> dict[str, Way]:
    call, submit = getattr(clients[0], method), getattr(clients[0].futures, method)
    calls = [getattr(client, method) for client in clients]
    to_all = getattr(courier.broadcast(clients), method)
    return {
        "call": lambda: call(array),
        "one future": lambda: submit(array).result(),
        "8 calls": lambda: [call(array) for _ in range(AT_ONCE)],
        "8 futures": lambda: [each.result() for each in [submit(array) for _ in range(AT_ONCE)]],
        "3 calls": lambda: [call(array) for call in calls],
        "broadcast": lambda: to_all(array),
    }


def show(report: dict[str, Any]) -> None:
    print(f"\n{'':28}{'ms':>11}{'(range)':>22}{'to calls':>11}{'(range)':>22}")
    for way, rows in report.items():
        for what, row in rows.items():
            if isinstance(row, dict):
                figures = with_range(row["ms"], 2) + with_range(row["to_blocking"], 2)
                print(f"{way:14}{what:14}{figures}")
