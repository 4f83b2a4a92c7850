"""`broadcast` of 1 MB to 8 servers, each a process: its time to that of one call."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.large_futures import connect
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Failed, be_client
from benchmarks.calls.placement import placements, unpinned
from benchmarks.calls.spread import spread, with_range
from benchmarks.calls.worker import Worker
from launchpad import courier

SERVERS = 8
BYTES = 10**6
TURNS, UNCOUNTED = 300, 20
SERVE = {"unix": ours.serve_unix, "tcp": ours.serve_tcp}


def measure(options: Options) -> dict[str, Any]:
    turns = options.amount(TURNS, 3)
    places = [*placements()[:1], *unpinned()]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(options.rounds):
        for name, serve in SERVE.items():
            with ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                servers = [Worker(stack, serve, f"{directory}/{i}") for i in range(SERVERS)]
                client = Worker(stack, be_client, connect)
                client.say([server.hear() for server in servers])
                client.hear()
                for where in places:
                    client.pin(where.client)
                    for server in servers:
                        server.pin(where.server)
                    times = client.ask((medians, (turns,)))
                    if isinstance(times, Failed):
                        raise times
                    found.setdefault(f"{name}, {where.name}", []).append(times)
    return {
        where: {
            "call_ms": spread([call * 1e3 for call, _, _ in rounds]),
            "broadcast_ms": spread([to_all * 1e3 for _, to_all, _ in rounds]),
            "to_one_call": spread([ratio for _, _, ratio in rounds]),
        }
        for where, rounds in found.items()
    }


def medians(clients: list[courier.Client[Any]], turns: int) -> tuple[float, float, float]:
    """Seconds of a call, of a broadcast, and the ratio; over the turns, in which both come."""
    import numpy as np

    array = np.full(BYTES // 4, 1.5, dtype=np.float32)
    to_all, now = courier.broadcast(clients).size, time.perf_counter
    times = []
    for turn in range(UNCOUNTED + turns):
        began = now()
        clients[turn % len(clients)].size(array)
        between = now()
        to_all(array)
        times.append((between - began, now() - between))
    counted = times[UNCOUNTED:]
    calls, broadcasts = zip(*counted, strict=True)
    ratio = statistics.median(to_all / call for call, to_all in counted)
    return statistics.median(calls), statistics.median(broadcasts), ratio


def show(report: dict[str, Any]) -> None:
    heads = "".join(f"{head:>11}{'(range)':>22}" for head in ("call ms", "broadcast", "to a call"))
    print(f"\n{'':20}{heads}")
    for where, row in report.items():
        print(f"{where:20}" + "".join(with_range(each, 2) for each in row.values()))
