"""16 client processes of one server, each with one call at a time, or with 50: calls/s of all."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.calls.contenders import ours, uvloop_protocol
from benchmarks.calls.contenders.contender import Client, Contender
from benchmarks.calls.pairs import (
    Options,
    Placement,
    ask_client,
    available,
    placements,
    rates,
    show_rates,
    start_client,
    unpinned,
)
from benchmarks.harness.processes import Worker

CLIENTS = 16
AT_ONCE = {"one call each": 1, "50 calls each": 50}
BEGINS_IN_S = 0.1  # time for all clients to hear when they begin
CONTENDERS = [
    uvloop_protocol.UVLOOP,
    ours.UNIX,
    ours.OVER_TCP,
]


class Clients:
    """A new server and its clients, already connected. They are killed when the stack is unwound."""

    def __init__(self, stack: ExitStack, contender: Contender, path: str, n: int) -> None:
        self._server = Worker(stack, contender.serve, path)
        place = self._server.hear()
        self._clients = [start_client(stack, contender.connect, place) for _ in range(n)]
        for client in self._clients:
            ask_client(client, warm_up)

    def calls_per_s(self, placement: Placement, at_once: int, seconds: float) -> float:
        self._server.pin(placement.server)
        begin = time.monotonic() + BEGINS_IN_S
        for client in self._clients:
            client.pin(placement.client)
            client.say((keep_calling, (at_once, begin, begin + seconds)))
        calls: int = sum(client.hear() for client in self._clients)
        return calls / seconds


def measure(options: Options) -> dict[str, Any]:
    contenders = available(CONTENDERS)
    n_clients = options.amount(CLIENTS, 2)
    seconds = options.amount(0.7, 0.05)
    by_shape: dict[str, dict[str, list[float]]] = {}
    for i in range(options.rounds):
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            order = [
                (contender.name, Clients(stack, contender, f"{directory}/{n}", n_clients))
                for n, contender in enumerate(contenders)
            ]
            for shape, at_once in AT_ONCE.items():
                for placement in (placements()[0], *unpinned()):
                    by_name = by_shape.setdefault(
                        f"{shape}, {placement.name}",
                        {contender.name: [] for contender in contenders},
                    )
                    for name, clients in order if i % 2 else reversed(order):
                        by_name[name].append(clients.calls_per_s(placement, at_once, seconds))
    return {shape: rates(by_name, ["uvloop"]) for shape, by_name in by_shape.items()}


def warm_up(client: Client) -> None:
    """Call in both ways, so that all connections are open."""
    assert client.call_all is not None
    client.call(0)
    client.call_all(1)


def keep_calling(client: Client, at_once: int, begin: float, end: float) -> int:
    """Call from the moment `begin` to the moment `end`; return the number of answers."""
    assert client.call_all is not None
    time.sleep(max(0.0, begin - time.monotonic()))
    n = 0
    while time.monotonic() < end:
        if at_once == 1:
            client.call(7)
        else:
            client.call_all(at_once)
        n += at_once
    return n


def show(report: dict[str, Any]) -> None:
    for shape, rows in report.items():
        show_rates(shape, rows)
