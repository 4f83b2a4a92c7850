"""What courier's own services cost a call, by turning them off.

One client process has a client of each kind, one server process a server of each; they take turns
every hundred calls. `nothing` is a copy of courier that counts nothing, without token or deadline.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.calls.contender import Contender
from benchmarks.calls.contenders.ours import echo
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import placements
from benchmarks.calls.spread import spread, with_range
from benchmarks.calls.turns import take_turns
from benchmarks.calls.uncounted import PACKAGE, write_copy

OURS = "launchpad.courier"
BLOCK = 100
TOKEN = bytes(32)
NOTHING, ALL = "nothing", "counters, token, deadline"
# The package, and the options of its server and of its client.
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    NOTHING: (PACKAGE, {}, {}),
    "counters": (OURS, {}, {}),
    ALL: (OURS, {"token": TOKEN}, {"token": TOKEN, "call_timeout": 60.0}),
}


def measure(options: Options) -> dict[str, Any]:
    seconds = 0.05 if options.quick else 0.6
    with tempfile.TemporaryDirectory() as directory:
        if not write_copy(Path(directory)):
            raise RuntimeError("nothing in courier counts under the name that uncounted.py knows")
        contender = Contender("courier", partial(serve, directory), partial(connect, directory))
        found = take_turns(
            [contender], placements(), options.rounds, lambda pair: one_turn(pair, seconds)
        )
    return {where: summary(each["courier"]) for where, each in found.items() if each}


def serve(directory: str, path: str, pipe: Connection) -> None:
    sys.path.append(directory)
    for i, (package, options, _) in enumerate(KINDS.values()):
        courier = importlib.import_module(package)
        server = courier.Server("echo", address=f"unix:{path}{i}", **options)
        server.bind("echo", echo)
        server.start()
    pipe.send(path)
    pipe.recv()


@contextmanager
def connect(directory: str, path: str) -> Iterator[list[Call]]:
    """The same call, once of every kind."""
    sys.path.append(directory)
    with ExitStack() as stack:
        calls = []
        for i, (package, _, options) in enumerate(KINDS.values()):
            courier = importlib.import_module(package)
            client = stack.enter_context(courier.Client(f"unix:{path}{i}", **options))
            calls.append(client.echo)
        yield calls


def one_turn(pair: Pair, seconds: float) -> list[float]:
    found: list[float] = pair.measure(p50s_us, seconds)
    return found


def p50s_us(calls: list[Call], seconds: float) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    in_turn = list(zip(calls, times, strict=True))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for call, found in in_turn:
            time_block(call, found)
        in_turn.reverse()
    return [sorted(found)[len(found) // 2] * 1e6 for found in times]


def time_block(call: Call, found: list[float]) -> None:
    now = time.perf_counter
    call(7)  # the one that finds everything cold
    for _ in range(BLOCK):
        began = now()
        call(7)
        found.append(now() - began)


def summary(turns: list[list[float]]) -> dict[str, Any]:
    return {
        kind: {
            "p50_us": spread([turn[i] for turn in turns]),
            "costs_us": spread([turn[i] - turn[0] for turn in turns]),
        }
        for i, kind in enumerate(KINDS)
    }


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        print(f"\n{where:28}{'p50 µs':>11}{'(range)':>22}{'costs µs':>11}{'(range)':>22}")
        for kind, row in rows.items():
            print(f"{kind:28}{with_range(row['p50_us'])}{with_range(row['costs_us'], 2)}")
