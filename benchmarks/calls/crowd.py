"""Very many calls at once: errors, calls/s, memory.

outstanding   100,000 futures of one client at once
crowd         1,000 clients of one server with 10 calls in flight each
"""

from __future__ import annotations

import resource
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import ours
from benchmarks.calls.contenders.contender import Client, Contender
from benchmarks.calls.contenders.ours import Place, new_client
from benchmarks.calls.pairs import Options, Pair, take_turns_once
from benchmarks.harness import holdings
from benchmarks.harness.figures import Table
from benchmarks.harness.processes import Worker

FUTURES = 100_000
CLIENTS = 1000
PROCESSES = 4
IN_FLIGHT = 10
WAVES = 5
MIB = 2**20
CONTENDERS = [ours.UNIX, ours.OVER_TCP, ours.IN_PROCESS]


def measure(options: Options) -> dict[str, Any]:
    n_futures = options.amount(FUTURES, 1000)
    n_clients = options.amount(CLIENTS, 40) // PROCESSES
    return {
        "outstanding": take_turns_once(CONTENDERS, lambda pair: many_futures(pair, n_futures)),
        "clients": {c.name: one_crowd(c, n_clients) for c in CONTENDERS[:2]},
    }


def many_futures(pair: Pair, n: int) -> dict[str, float]:
    before = holdings.resident(pair.server.pid)
    seconds, errors = pair.measure(submit_all, n)
    grown = holdings.resident_peak(pair.server.pid) - before
    return {"calls": n, "errors": errors, "calls_per_s": n / seconds, "server_mib": grown / MIB}


def submit_all(client: Client, n: int) -> tuple[float, int]:
    assert client.submit is not None
    began = time.perf_counter()
    futures = [client.submit(i) for i in range(n)]
    errors = n_wrong(futures, list(range(n)))
    return time.perf_counter() - began, errors


def n_wrong(futures: list[Any], expected: list[int]) -> int:
    return sum(
        future.exception(60) is not None or future.result() != value
        for future, value in zip(futures, expected, strict=True)
    )


def one_crowd(contender: Contender, n_clients: int) -> dict[str, float]:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = Worker(stack, serve_many, contender.serve, f"{directory}/s")
        place = server.hear()
        crowds = [Worker(stack, be_crowd, place, n_clients) for _ in range(PROCESSES)]
        for crowd in crowds:
            crowd.hear()
        before = holdings.resident(server.pid)
        errors, seconds = all_at_once(crowds)
        grown = holdings.resident_peak(server.pid) - before
    calls = n_clients * PROCESSES * IN_FLIGHT * WAVES
    return {
        "calls": calls,
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
    """Be `n` clients. They connect with their first calls, after the script has said to begin."""
    allow_many_files()
    clients = [new_client(place) for _ in range(n)]
    pipe.send(True)
    pipe.recv()
    pipe.send(sum(errors_of_a_wave(clients) for _ in range(WAVES)))
    pipe.recv()


def errors_of_a_wave(clients: list[Any]) -> int:
    futures = [client.futures.echo(i) for i in range(IN_FLIGHT) for client in clients]
    return n_wrong(futures, [i for i in range(IN_FLIGHT) for _ in clients])


def allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def show(report: dict[str, Any]) -> None:
    columns = {"calls": ",", "errors": ",", "calls/s": ",.0f", "server +MiB": ".1f"}
    for title, rows in report.items():
        print()
        table = Table(title, columns)
        for name, row in rows.items():
            table.row(name, *row.values())
