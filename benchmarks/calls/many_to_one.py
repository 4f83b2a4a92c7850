"""16 client processes of one server, each with one call at a time, or with 50: calls/s of all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contender import needs, nothing_missing
from benchmarks.calls.contenders import ours, uvloop_protocol
from benchmarks.calls.contenders.timing import CallAll
from benchmarks.calls.options import Options
from benchmarks.calls.placement import Placement, placements, unpinned
from benchmarks.calls.rates import rates_and_ratios, show_rates
from benchmarks.calls.worker import Worker

CLIENTS = 16
AT_ONCE = {"one call each": 1, "50 calls each": 50}
BEGINS_IN_S = 0.05  # by then all clients know when
BASE = "uvloop"


@dataclass(frozen=True)
class Crowd:
    """A server, and how its clients make one call, and several."""

    name: str
    serve: Callable[[str, Connection], None]
    connect_one: Callable[[Any], Any]
    connect_many: Callable[[Any], Any]
    why_not: Callable[[], str] = nothing_missing


CONTENDERS = [
    Crowd(
        BASE,
        uvloop_protocol.serve,
        uvloop_protocol.connect_blocking,
        uvloop_protocol.connect_all_at_once,
        needs("uvloop"),
    ),
    Crowd("courier", ours.serve_unix, ours.connect, ours.connect_all_at_once),
    Crowd(
        "courier tcp",
        ours.serve_tcp,
        ours.connect,
        ours.connect_all_at_once,
        ours.cannot_serve(ours.TCP),
    ),
]


class Clients:
    """A server and its clients, new; killed when the stack is unwound."""

    def __init__(self, stack: ExitStack, crowd: Crowd, path: str, n: int) -> None:
        self._server = Worker(stack, crowd.serve, path)
        self._clients = [
            Worker(stack, be_client, crowd.connect_one, crowd.connect_many) for _ in range(n)
        ]

    def connect(self) -> None:
        place = self._server.hear()
        for client in self._clients:
            client.say(place)
        for client in self._clients:
            client.hear()

    def calls_per_s(self, placement: Placement, at_once: int, seconds: float) -> float:
        self._server.pin(placement.server)
        begin = time.monotonic() + BEGINS_IN_S
        for client in self._clients:
            client.pin(placement.client)
            client.say((at_once, begin, begin + seconds))
        calls: int = sum(client.hear() for client in self._clients)
        return calls / seconds


def measure(options: Options) -> dict[str, Any]:
    crowds = [crowd for crowd in CONTENDERS if not crowd.why_not()]
    clients, seconds = options.amount(CLIENTS, 2), 0.05 if options.quick else 0.7
    places = [*placements()[:1], *unpinned()]
    found: dict[str, dict[str, list[float]]] = {
        f"{shape}, {where.name}": {crowd.name: [] for crowd in crowds}
        for shape in AT_ONCE
        for where in places
    }
    for i in range(options.rounds):
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            taking_part = [
                Clients(stack, crowd, f"{directory}/{n}", clients) for n, crowd in enumerate(crowds)
            ]
            for each in taking_part:
                each.connect()
            for shape, at_once in AT_ONCE.items():
                for where in places:
                    order = list(zip(crowds, taking_part, strict=True))
                    for crowd, each in order if i % 2 else reversed(order):
                        rate = each.calls_per_s(where, at_once, seconds)
                        found[f"{shape}, {where.name}"][crowd.name].append(rate)
    return {shape: rates_and_ratios(rates, [BASE]) for shape, rates in found.items()}


def be_client(
    connect_one: Callable[[Any], Any], connect_many: Callable[[Any], Any], pipe: Connection
) -> None:
    """Calls when it is told to, and says how many calls were answered until then."""
    place = pipe.recv()
    with connect_one(place) as call, connect_many(place) as call_all:
        call(0)
        call_all(1)
        pipe.send(True)
        while True:
            at_once, begin, end = pipe.recv()
            time.sleep(max(0.0, begin - time.monotonic()))
            pipe.send(keep_calling(call, call_all, at_once, end))


def keep_calling(call: Callable[[Any], Any], call_all: CallAll, at_once: int, end: float) -> int:
    n, now = 0, time.monotonic
    while now() < end:
        if at_once == 1:
            call(7)
        else:
            call_all(at_once)
        n += at_once
    return n


def show(report: dict[str, Any]) -> None:
    for shape, rows in report.items():
        show_rates(shape, rows)
