"""A server that runs calls one at a time, in one thread, beside an ordinary one: µs a call, calls/s of all.

Every caller is a thread with a client of its own. The server notes the largest number of calls at once.
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.contenders.contender import Contender
from benchmarks.calls.pairs import Options, take_turns, unpinned
from benchmarks.harness.figures import Table, ratios, spread
from benchmarks.harness.processes import run_threads
from launchpad import courier
from launchpad.courier.server.one_thread import OneThread

CALLERS = (1, 100, 1000)
CALLS = 20_000  # of all callers together
ORDINARY = "ordinary"
IN_TURN = "one at a time"


class Counter:
    """A server that counts its calls, and how many of them run at once."""

    def __init__(self) -> None:
        self._n = 0
        self._n_inside = 0
        self._most_inside = 0

    def add(self) -> int:
        self._n_inside += 1
        self._most_inside = max(self._most_inside, self._n_inside)
        self._n += 1
        self._n_inside -= 1
        return self._n

    def most_inside(self) -> int:
        return self._most_inside


def serve(in_turn: bool, path: str, pipe: Connection) -> None:
    one_thread = OneThread() if in_turn else None
    server = courier.Server("counter", address=f"unix:{path}", one_thread=one_thread)
    server.bind_object(Counter())
    server.start()
    pipe.send(ours.Place(server.address))
    if one_thread is not None:
        one_thread.run()
    server.join()


CONTENDERS = [
    Contender(ORDINARY, partial(serve, False), nullcontext),
    Contender(IN_TURN, partial(serve, True), nullcontext),
]


def measure(options: Options) -> dict[str, Any]:
    calls = options.amount(CALLS, 200)
    callers = CALLERS[: options.amount(3, 2)]
    turns = take_turns(
        CONTENDERS,
        unpinned(),
        options.rounds,
        lambda pair: [pair.measure(call, n, max(1, calls // n)) for n in callers],
    )["unpinned"]
    rows: dict[str, Any] = {}
    for i, n in enumerate(callers):
        us = {name: [turn[i]["us"] for turn in own_turns] for name, own_turns in turns.items()}
        for name, own_turns in turns.items():
            rows[f"{n} callers, {name}"] = {
                "us": spread(us[name]),
                "to_ordinary": ratios(us[name], us[ORDINARY]),
                "calls_per_s": spread(turn[i]["calls_per_s"] for turn in own_turns),
            }
    most = max(figures["most_at_once"] for turn in turns[IN_TURN] for figures in turn)
    return {"rows": rows, "most_at_once": most}


def call(place: ours.Place, n_callers: int, n_calls: int) -> dict[str, float]:
    """Call from `n_callers` threads, `n_calls` times each; return the figures."""
    seconds: list[float] = []

    def call_often() -> None:
        with ours.connected(place) as client:
            for _ in range(n_calls):
                began = time.perf_counter()
                client.add()
                seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    run_threads(*[call_often] * n_callers)
    took_s = time.perf_counter() - began
    with ours.connected(place) as client:
        most_at_once = client.most_inside()
    return {
        "us": 1e6 * statistics.median(seconds),
        "calls_per_s": len(seconds) / took_s,
        "most_at_once": most_at_once,
    }


def show(report: dict[str, Any]) -> None:
    print()
    heads = {"µs (range)": ",.1f", "to ordinary (range)": ",.1f", "calls/s (range)": ",.0f"}
    table = Table("", heads, width=28)
    for name, row in report["rows"].items():
        table.row(name, *row.values())
