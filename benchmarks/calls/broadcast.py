"""`broadcast` of 1 MB to 8 servers, each a process: its time to that of one call."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.large_futures import connect
from benchmarks.calls.pairs import Options, ask_client, placements, start_client, unpinned
from benchmarks.harness.figures import Table, summary
from benchmarks.harness.processes import Worker
from launchpad import courier

SERVERS = 8
BYTES = 10**6
TURNS = 300
UNCOUNTED = 20
SERVE = {"unix": ours.serve_unix, "tcp": ours.serve_tcp}


def measure(options: Options) -> dict[str, Any]:
    turns = options.amount(TURNS, 3)
    by_placement: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name, serve in SERVE.items():
            with ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                servers = [Worker(stack, serve, f"{directory}/{i}") for i in range(SERVERS)]
                client = start_client(stack, connect, [server.hear() for server in servers])
                for placement in (placements()[0], *unpinned()):
                    client.pin(placement.client)
                    for server in servers:
                        server.pin(placement.server)
                    figures = ask_client(client, medians, turns)
                    by_placement.setdefault(f"{name}, {placement.name}", []).append(figures)
    return {placement: summary(rounds) for placement, rounds in by_placement.items()}


def medians(clients: list[courier.Client[Any]], turns: int) -> dict[str, float]:
    """Return the medians over the turns. Each turn has one call and one broadcast."""
    import numpy as np

    array = np.full(BYTES // 4, 1.5, dtype=np.float32)
    to_all = courier.broadcast(clients).size
    now = time.perf_counter
    times = []
    for turn in range(UNCOUNTED + turns):
        began = now()
        clients[turn % len(clients)].size(array)
        between = now()
        to_all(array)
        times.append((between - began, now() - between))
    counted = times[UNCOUNTED:]
    return {
        "call_ms": 1e3 * statistics.median(call for call, _ in counted),
        "broadcast_ms": 1e3 * statistics.median(broadcast for _, broadcast in counted),
        "to_one_call": statistics.median(broadcast / call for call, broadcast in counted),
    }


def show(report: dict[str, Any]) -> None:
    print()
    heads = ("call ms (range)", "broadcast ms (range)", "to a call (range)")
    table = Table("", dict.fromkeys(heads, ",.2f"))
    for placement, row in report.items():
        table.row(placement, *row.values())
