"""1,000 clients of one server with 10 calls in flight each: errors, calls/s, the server's memory."""

from __future__ import annotations

import resource
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls import memory
from benchmarks.calls.contender import Contender, available
from benchmarks.calls.contenders import ours
from benchmarks.calls.contenders.ours import Place, new_client
from benchmarks.calls.options import Options
from benchmarks.calls.worker import Worker

CLIENTS = 1000
PROCESSES = 4
IN_FLIGHT = 10
WAVES = 5
MIB = 2**20
CONTENDERS = [
    Contender("courier", ours.serve_unix, ours.connect),
    Contender("courier tcp", ours.serve_tcp, ours.connect, ours.cannot_serve(ours.TCP)),
]


def measure(options: Options) -> dict[str, Any]:
    each = options.amount(CLIENTS, 40) // PROCESSES
    return {contender.name: one_crowd(contender, each) for contender in available(CONTENDERS)}


def one_crowd(contender: Contender, each: int) -> dict[str, float]:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = Worker(stack, serve_many, contender.serve, f"{directory}/s")
        place = server.hear()
        crowds = [Worker(stack, be_crowd, place, each) for _ in range(PROCESSES)]
        for crowd in crowds:
            crowd.hear()
        before = memory.resident(server.pid)
        errors, seconds = all_at_once(crowds)
        grown = memory.resident_peak(server.pid) - before
    calls = each * PROCESSES * IN_FLIGHT * WAVES
    return {
        "clients": each * PROCESSES,
        "errors": errors,
        "calls_per_s": calls / seconds,
        "server_mib": grown / MIB,
    }


def all_at_once(crowds: list[Worker]) -> tuple[int, float]:
    began = time.perf_counter()
    for crowd in crowds:
        crowd.say("go")
    errors = sum(crowd.hear() for crowd in crowds)
    return errors, time.perf_counter() - began


def serve_many(serve: Any, path: str, pipe: Connection) -> None:
    allow_many_files()
    serve(path, pipe)


def be_crowd(place: Place, n: int, pipe: Connection) -> None:
    """So many clients, none of which has connected when it says that it is ready."""
    allow_many_files()
    clients = [new_client(place) for _ in range(n)]
    pipe.send(True)
    pipe.recv()
    pipe.send(sum(errors_of_a_wave(clients) for _ in range(WAVES)))
    pipe.recv()


def errors_of_a_wave(clients: list[Any]) -> int:
    futures = [client.futures.echo(i) for i in range(IN_FLIGHT) for client in clients]
    expected = [i for i in range(IN_FLIGHT) for _ in clients]
    return sum(
        future.exception(60) is not None or future.result() != value
        for future, value in zip(futures, expected, strict=True)
    )


def allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def show(report: dict[str, Any]) -> None:
    print(f"\n{'':20}{'clients':>8}{'errors':>8}{'calls/s':>10}{'server +MiB':>13}")
    for name, row in report.items():
        print(
            f"{name:20}{row['clients']:8,}{row['errors']:8,}{row['calls_per_s']:10,.0f}"
            f"{row['server_mib']:13.1f}"
        )
