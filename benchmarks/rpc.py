"""What a call costs: one int, there and back, between two processes on this host.

    python benchmarks/rpc.py [--json FILE] [--rounds N] [--seconds S]

Contenders take turns within each round, so that whatever else the machine does hits all of them
alike; figures are medians over the rounds, with the range. `raw` is the best that plain Python can
do: a blocking unix socket, a length before each pickle, one send and one receive on either side,
no method names, no errors, no threads. grpcio takes part where it is installed.
"""

from __future__ import annotations

import argparse
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
        body = pickle.dumps(value, 5)
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


def serve_grpc(path: str, is_up: Connection) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, context: echo(request), pickle.loads, pickle.dumps
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
            body = pickle.dumps(value, 5)
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
        yield channel.unary_unary("/bench.Echo/echo", pickle.dumps, pickle.loads)


CONTENDERS: dict[str, tuple[Callable[[str, Connection], None], Callable[[str], Any]]] = {
    "raw": (serve_raw, call_raw),
    "courier": (serve_courier, call_courier),
    "grpcio": (serve_grpc, call_grpc),
}


@contextmanager
def running(serve: Callable[[str, Connection], None], path: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(path, theirs), daemon=True)
    process.start()
    if not ours.poll(30):
        raise TimeoutError(f"{serve.__name__} did not come up")
    try:
        yield
    finally:
        process.kill()
        process.join()
        process.close()


# Measuring


def time_calls(call: Call, seconds: float) -> tuple[float, float]:
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


def time_futures(client: courier.Client[Any], n: int) -> float:
    """Calls per second with `n` futures in flight at once."""
    began = time.perf_counter()
    futures = [client.futures.echo(i) for i in range(n)]
    for future in futures:
        future.result()
    return n / (time.perf_counter() - began)


def time_in_process(seconds: float) -> tuple[float, float]:
    server = courier.Server("echo", address="inproc:benchmark")
    server.bind("echo", echo)
    server.start()
    try:
        with courier.Client[Any](server.address) as client:
            return time_calls(client.echo, seconds)
    finally:
        server.stop()


def measure(names: list[str], directory: str, rounds: int, seconds: float) -> dict[str, Any]:
    latencies: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    latencies["in-process"] = []
    rates = []
    with ExitStack() as stack:
        calls = {}
        for name in names:
            serve, connect = CONTENDERS[name]
            path = os.path.join(directory, name)
            stack.enter_context(running(serve, path))
            calls[name] = stack.enter_context(connect(path))
        client = stack.enter_context(courier.Client[Any](f"unix:{directory}/courier"))
        for i in range(rounds):
            for name in names if i % 2 else reversed(names):
                latencies[name].append(time_calls(calls[name], seconds))
            latencies["in-process"].append(time_in_process(seconds / 2))
            rates.append(time_futures(client, 20_000))
    return {"latencies": latencies, "futures_per_s": rates}


def summarize(measured: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    for name, pairs in measured["latencies"].items():
        p50s, p99s = zip(*pairs, strict=True)
        report[name] = {"p50_us": spread(p50s), "p99_us": spread(p99s)}
    raw = [p50 for p50, _ in measured["latencies"]["raw"]]
    for name in set(measured["latencies"]) - {"raw"}:
        ratios = [
            p50 / base for (p50, _), base in zip(measured["latencies"][name], raw, strict=True)
        ]
        report[name]["ratio_to_raw"] = spread(ratios)
    report["futures_per_s"] = spread(measured["futures_per_s"])
    return report


def spread(values: Any) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def show(report: dict[str, Any]) -> None:
    print(f"Python {report['python']}, {report['cores']} cores; one int, there and back")
    print(f"{'':12}{'p50 µs':>9}{'(range)':>18}{'p99 µs':>9}{'to raw':>8}{'(range)':>15}")
    for name in [*CONTENDERS, "in-process"]:
        if name in report:
            show_row(name, report[name])
    rate = report["futures_per_s"]
    print(
        f"20,000 futures of one client: {rate['median']:,.0f} calls/s "
        f"({rate['min']:,.0f} to {rate['max']:,.0f})"
    )


def show_row(name: str, row: dict[str, dict[str, float]]) -> None:
    p50, p99, ratio = row["p50_us"], row["p99_us"], row.get("ratio_to_raw")
    range_us = f"({p50['min']:.1f} to {p50['max']:.1f})"
    line = f"{name:12}{p50['median']:9.1f}{range_us:>18}{p99['median']:9.1f}"
    if ratio is not None:
        range_ratio = f"({ratio['min']:.2f} to {ratio['max']:.2f})"
        line += f"{ratio['median']:8.2f}{range_ratio:>15}"
    print(line)


def available() -> list[str]:
    names = ["raw", "courier"]
    try:
        import grpc
    except ImportError:
        return names
    return [*names, "grpcio"] if grpc else names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7, help="per contender and round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = summarize(measure(available(), directory, options.rounds, options.seconds))
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
