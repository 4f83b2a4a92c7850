"""What a call costs: one int, there and back, between two processes on this host.

    python benchmarks/rpc.py [--json FILE] [--rounds N] [--seconds S]

Measured three times:

    one core    both processes pinned to the same one: what the code costs
    two cores   each pinned to its own: what the kernel needs to wake the other one up
    unpinned    what you get when you just run it; the scheduler goes back and forth between the
                two above, for each contender as it likes, and the figures follow it

The contenders:

    raw         the best that plain Python can do: a blocking unix socket, a length before each
                pickle, one send and one receive on either side, no method names, no errors, no
                threads
    courier     `client.echo(7)`, as a user would write it
    grpcio      generic handlers with the same pickle, where grpcio is installed
    in-process  courier again, with client and server in one process

Each contender has a client process and a server process of its own, new in every round, because
where the loader happens to place a process moves its figures by a third. They take turns, so that
whatever else the machine does hits all of them alike, and every placement turns the order around.
A p50 is the median of single calls in one round; shown is the median of those over the rounds, with
the range. `to raw` compares within a round. Futures are measured unpinned.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import pickle
import platform
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from launchpad import courier

Call = Callable[[int], Any]
LENGTH = struct.Struct("<Q")
PROTOCOL = 5  # of pickle, for all


def echo(value: Any) -> Any:
    return value


# Servers, each run in a process of its own. They say when they are up, and serve until killed.


def serve_raw(path: str, is_up: Connection) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    is_up.send(True)
    sock, _ = listener.accept()
    buffer = bytearray(65536)
    while n := receive_raw(sock, buffer):
        value = echo(pickle.loads(memoryview(buffer)[8:n]))
        body = pickle.dumps(value, PROTOCOL)
        sock.sendall(LENGTH.pack(len(body)) + body)


def receive_raw(sock: socket.socket, buffer: bytearray) -> int:
    n = sock.recv_into(buffer)
    if n >= 8:
        (length,) = LENGTH.unpack_from(buffer)
        while n < 8 + length:
            n += sock.recv_into(memoryview(buffer)[n:])
    return n


def serve_courier(path: str, is_up: Connection) -> None:
    server = courier.Server("echo", address=f"unix:{path}")
    server.bind("echo", echo)
    server.start()
    is_up.send(True)
    server.join()


def dump(value: Any) -> bytes:
    return pickle.dumps(value, PROTOCOL)


def serve_grpc(path: str, is_up: Connection) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, context: echo(request), pickle.loads, dump
    )
    server = grpc.server(ThreadPoolExecutor(4))
    service = grpc.method_handlers_generic_handler("bench.Echo", {"echo": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    is_up.send(True)
    server.wait_for_termination()


# Clients: each gives a function that makes one call.


@contextmanager
def call_raw(path: str) -> Iterator[Call]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        buffer = bytearray(65536)

        def call(value: int) -> Any:
            body = pickle.dumps(value, PROTOCOL)
            sock.sendall(LENGTH.pack(len(body)) + body)
            n = receive_raw(sock, buffer)
            return pickle.loads(memoryview(buffer)[8:n])

        yield call


@contextmanager
def call_courier(path: str) -> Iterator[Call]:
    with courier.Client[Any](f"unix:{path}") as client:
        yield client.echo


@contextmanager
def call_grpc(path: str) -> Iterator[Call]:
    import grpc

    with grpc.insecure_channel(f"unix:{path}") as channel:
        yield channel.unary_unary("/bench.Echo/echo", dump, pickle.loads)


@contextmanager
def call_in_process(path: str) -> Iterator[Call]:
    server = courier.Server("echo", address=f"inproc:{path}")
    server.bind("echo", echo)
    server.start()
    try:
        with courier.Client[Any](server.address) as client:
            yield client.echo
    finally:
        server.stop()


def serve_nothing(path: str, pipe: Connection) -> None:
    pipe.send(True)
    pipe.recv()


CONTENDERS: dict[str, tuple[Callable[[str, Connection], None], Callable[[str], Any]]] = {
    "raw": (serve_raw, call_raw),
    "courier": (serve_courier, call_courier),
    "grpcio": (serve_grpc, call_grpc),
    "in-process": (serve_nothing, call_in_process),
}


class Process:
    """A process of ours, spawned, up, and killed at the end."""

    def __init__(self, stack: ExitStack, main: Callable[..., None], *args: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(*args, theirs), daemon=True)
        self._process.start()
        stack.callback(self._process.join)
        stack.callback(self._process.kill)
        self._wait()

    def ask(self, *question: Any) -> Any:
        self._pipe.send(question)
        return self._wait()

    def pin(self, cores: set[int]) -> None:
        """All its threads; those that it starts later inherit."""
        for thread in os.listdir(f"/proc/{self._process.pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def _wait(self) -> Any:
        if not self._pipe.poll(60):
            raise TimeoutError(f"{self._process} does not answer")
        return self._pipe.recv()


def be_client(name: str, path: str, pipe: Connection) -> None:
    """Measures what it is asked to, until it is killed."""
    with CONTENDERS[name][1](path) as call:
        call(0)
        pipe.send(True)
        while True:
            measure_one, amount = pipe.recv()
            pipe.send(measure_one(call, path, amount))


# Measuring


def time_calls(call: Call, _: str, seconds: float) -> tuple[float, float]:
    """p50 and p99 of single calls, in µs."""
    now = time.perf_counter
    for i in range(50):
        call(i)
    times = []
    end = now() + seconds
    while (began := now()) < end:
        call(7)
        times.append(now() - began)
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


def time_futures(_: Call, path: str, n: int) -> float:
    """Calls per second with `n` futures in flight at once."""
    with courier.Client[Any](f"unix:{path}") as client:
        client.futures.echo(0).result()
        began = time.perf_counter()
        futures = [client.futures.echo(i) for i in range(n)]
        for future in futures:
            future.result()
        return n / (time.perf_counter() - began)


def placements() -> dict[str, tuple[set[int], set[int]]]:
    """Where client and server run, by name."""
    everywhere = os.sched_getaffinity(0)
    first, *others = sorted(everywhere)
    found = {"one core": ({first}, {first})}
    if others:
        found |= {"two cores": ({first}, {others[0]}), "unpinned": (everywhere, everywhere)}
    return found


def measure(names: list[str], directory: str, rounds: int, seconds: float) -> dict[str, Any]:
    latencies: dict[str, dict[str, list[tuple[float, float]]]] = {
        placement: {name: [] for name in names} for placement in placements()
    }
    rates = []
    for i in range(rounds):
        with ExitStack() as stack:
            pairs = {name: start_pair(stack, name, f"{directory}/{name}{i}") for name in names}
            for turn, (placement, cores) in enumerate(placements().items(), start=i):
                for name in names if turn % 2 else reversed(names):
                    pin_pair(pairs[name], cores)
                    found = pairs[name][0].ask(time_calls, seconds)
                    latencies[placement][name].append(found)
            everywhere = os.sched_getaffinity(0)
            pin_pair(pairs["courier"], (everywhere, everywhere))
            rates.append(pairs["courier"][0].ask(time_futures, 20_000))
    return {"latencies": latencies, "futures_per_s": rates}


def start_pair(stack: ExitStack, name: str, path: str) -> tuple[Process, Process]:
    server = Process(stack, CONTENDERS[name][0], path)
    return Process(stack, be_client, name, path), server


def pin_pair(pair: tuple[Process, Process], cores: tuple[set[int], set[int]]) -> None:
    for process, where in zip(pair, cores, strict=True):
        process.pin(where)


def summarize(measured: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "placements": {},
    }
    for placement, found in measured["latencies"].items():
        raw = [p50 for p50, _ in found["raw"]]
        report["placements"][placement] = {
            name: summarize_one(pairs, raw) for name, pairs in found.items()
        }
    report["futures_per_s"] = spread(measured["futures_per_s"])
    return report


def summarize_one(pairs: list[tuple[float, float]], raw: list[float]) -> dict[str, Any]:
    p50s, p99s = zip(*pairs, strict=True)
    ratios = [p50 / base for p50, base in zip(p50s, raw, strict=True)]
    return {"p50_us": spread(p50s), "p99_us": spread(p99s), "ratio_to_raw": spread(ratios)}


def spread(values: Any) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def show(report: dict[str, Any]) -> None:
    print(f"Python {report['python']}, {report['cores']} cores; one int, there and back")
    head = f"{'p50 µs':>9}{'(range)':>18}{'p99 µs':>9}{'to raw':>8}{'(range)':>15}"
    for placement, rows in report["placements"].items():
        print(f"\n{placement:12}{head}")
        for name, row in rows.items():
            show_row(name, row)
    rate = report["futures_per_s"]
    print(
        f"\n20,000 futures of one client: {rate['median']:,.0f} calls/s "
        f"({rate['min']:,.0f} to {rate['max']:,.0f})"
    )


def show_row(name: str, row: dict[str, dict[str, float]]) -> None:
    p50, p99, ratio = row["p50_us"], row["p99_us"], row["ratio_to_raw"]
    range_us = f"({p50['min']:.1f} to {p50['max']:.1f})"
    range_ratio = f"({ratio['min']:.2f} to {ratio['max']:.2f})"
    print(
        f"{name:12}{p50['median']:9.1f}{range_us:>18}{p99['median']:9.1f}"
        f"{ratio['median']:8.2f}{range_ratio:>15}"
    )


def available() -> list[str]:
    has_grpc = importlib.util.find_spec("grpc") is not None
    return [name for name in CONTENDERS if name != "grpcio" or has_grpc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="per contender and round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = summarize(measure(available(), directory, options.rounds, options.seconds))
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
