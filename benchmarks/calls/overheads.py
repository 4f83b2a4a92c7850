"""What courier's own services cost a call, by turning them off.

One client process has a client of each kind, one server process a server of each; they take turns
every hundred calls. `nothing` is a copy of courier that counts nothing, without token or deadline.
"""

from __future__ import annotations

import importlib
import operator
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.calls.contender import Contender, needs
from benchmarks.calls.contenders.ours import echo
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.options import Options
from benchmarks.calls.pair import Pair
from benchmarks.calls.placement import placements
from benchmarks.calls.spread import spread, with_range
from benchmarks.calls.turns import take_turns
from benchmarks.calls.uncounted import PACKAGE, write_copy

BLOCK = 100
TOKEN = bytes(32)


class Kind(NamedTuple):
    """Courier with some of its services on."""

    package: str
    server: dict[str, Any]
    client: dict[str, Any]
    is_traced: bool = False


OURS = "launchpad.courier"
GUARDED = Kind(OURS, {"token": TOKEN}, {"token": TOKEN, "call_timeout": 60.0})
KINDS = {
    "nothing": Kind(PACKAGE, {}, {}),
    "counters": Kind(OURS, {}, {}),
    "counters, token, deadline": GUARDED,
    "…, and spans on both sides": GUARDED._replace(is_traced=True),
}


def kinds() -> dict[str, Kind]:
    """Those that can be measured here."""
    has_sdk = not needs("opentelemetry")() and not needs("opentelemetry.sdk")()
    return {name: kind for name, kind in KINDS.items() if has_sdk or not kind.is_traced}


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
    for i, kind in enumerate(kinds().values()):
        courier = importlib.import_module(kind.package)
        if kind.is_traced:
            trace()  # only the calls of those who trace, too
        server = courier.Server("echo", address=f"unix:{path}{i}", **kind.server)
        server.bind("echo", echo)
        server.start()
    pipe.send(path)
    pipe.recv()


@contextmanager
def connect(directory: str, path: str) -> Iterator[list[tuple[Kind, Call]]]:
    """The same call, once of every kind."""
    sys.path.append(directory)
    with ExitStack() as stack:
        calls = []
        for i, kind in enumerate(kinds().values()):
            courier = importlib.import_module(kind.package)
            client = stack.enter_context(courier.Client(f"unix:{path}{i}", **kind.client))
            calls.append((kind, client.echo))
        yield calls


def trace() -> None:
    """Spans are made, and thrown away: what an exporter costs is the exporter's."""
    from opentelemetry.sdk.trace import TracerProvider

    from launchpad import courier

    courier.trace(TracerProvider())


def one_turn(pair: Pair, seconds: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = pair.measure(p50s_and_costs_us, seconds)
    return found


def p50s_and_costs_us(calls: list[tuple[Kind, Call]], seconds: float) -> list[tuple[float, float]]:
    """Of each kind: its p50, and what it costs more than nothing, compared cycle by cycle."""
    cycles = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        cycles.append(one_cycle(calls))
        cycles.append(one_cycle(calls[::-1])[::-1])
    by_kind = list(zip(*cycles, strict=True))
    return [
        (
            statistics.median(p50s),
            statistics.median(map(operator.sub, p50s, by_kind[0])),
        )
        for p50s in by_kind
    ]


def one_cycle(calls: list[tuple[Kind, Call]]) -> list[float]:
    """A block of every kind, one right after the other: the p50 of each."""
    found = []
    for kind, call in calls:
        with traced() if kind.is_traced else nullcontext():
            found.append(p50_of_block_us(call))
    return found


@contextmanager
def traced() -> Iterator[None]:
    from launchpad import courier

    trace()
    yield
    courier.stop_tracing()


def p50_of_block_us(call: Call) -> float:
    now = time.perf_counter
    times = []
    call(7)  # the one that finds everything cold
    for _ in range(BLOCK):
        began = now()
        call(7)
        times.append(now() - began)
    return statistics.median(times) * 1e6


def summary(turns: list[list[tuple[float, float]]]) -> dict[str, Any]:
    return {
        kind: {
            "p50_us": spread([turn[i][0] for turn in turns]),
            "costs_us": spread([turn[i][1] for turn in turns]),
        }
        for i, kind in enumerate(kinds())
    }


def show(report: dict[str, Any]) -> None:
    for where, rows in report.items():
        print(f"\n{where:28}{'p50 µs':>11}{'(range)':>22}{'costs µs':>11}{'(range)':>22}")
        for kind, row in rows.items():
            print(f"{kind:28}{with_range(row['p50_us'])}{with_range(row['costs_us'], 2)}")
