"""1,000,000 calls: does anything grow, and is anything left when both sides have closed?

A client in one process calls a server in another, mostly with one int, a tenth of the calls by futures. One
call in a thousand has an array of 1 MiB, one raises an exception, one misses its deadline, one sends a
stream, one reads a stream to its end, and one leaves a stream in the middle. The script reads the memory of
each process ten times, after a tenth as many calls to warm up. `left` counts the threads, descriptors and
shared mappings that both processes have after the close, and did not have before they made client and server.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.pairs import Options
from benchmarks.harness.holdings import Belongings, belongings, footprint, growth
from benchmarks.harness.processes import Worker, wait_until
from launchpad import courier

MIB = 2**20
CALLS = 1_000_000
SAMPLES = 10
BLOCK = 1000  # calls, of which one is of each rare kind, and a tenth are futures
RARE_KINDS = 6
ITEMS = 10  # of a stream


def echo(value: Any) -> Any:
    return value


def fail() -> None:
    raise ValueError("as asked")


def nap(seconds: float) -> None:
    time.sleep(seconds)


def count(n: int) -> Iterator[int]:
    yield from range(n)


def total(items: Iterator[int]) -> int:
    return sum(items)


def serve(path: str, pipe: Connection) -> None:
    import numpy  # noqa: F401 - else its import would count as growth

    before = belongings()
    server = courier.Server("echo", address=f"unix:{path}")
    for method in (echo, fail, nap, count, total):
        server.bind(method.__name__, method)
    server.start()
    pipe.send(server.address)
    pipe.recv()
    server.stop()
    pipe.send(more_than(before))
    pipe.recv()


def be_client(address: str, pipe: Connection) -> None:
    import numpy as np

    before = belongings()
    array = np.ones(1 << 18, np.float32)
    with courier.Client[Any](address) as client:
        pipe.send(True)
        while blocks := pipe.recv():
            for _ in range(blocks):
                call_a_block(client, array)
            gc.collect()
            pipe.send(True)
    pipe.send(more_than(before))
    pipe.recv()


def call_a_block(client: Any, array: Any) -> None:
    n_futures = BLOCK // 10
    for i in range(BLOCK - n_futures - RARE_KINDS):
        assert client.echo(i) == i
    for i, future in enumerate([client.futures.echo(i) for i in range(n_futures)]):
        assert future.result() == i
    assert client.echo(array)[-1] == 1
    assert list(client.count(ITEMS)) == list(range(ITEMS))
    assert next(client.count(100 * ITEMS)) == 0
    assert client.total(iter(range(ITEMS))) == sum(range(ITEMS))
    # On a busy machine the answer may arrive before this thread looks at the deadline.
    with suppress(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.001).nap(0.02)
    try:
        client.fail()
    except ValueError:
        return
    raise AssertionError("the method's exception has not arrived")


def more_than(before: Belongings) -> Belongings:
    gc.collect()
    # A thread that has ended is still in /proc for a moment.
    wait_until(lambda: belongings() == before, 5, pause_s=0.05)
    now = belongings()
    return {kind: now[kind] - n for kind, n in before.items()}


def measure(options: Options) -> dict[str, Any]:
    """Return the worst of the rounds."""
    rounds = [soak(options.amount(CALLS, 10_000)) for _ in range(options.rounds)]
    return max(rounds, key=badness) | {"rounds": rounds}


def badness(figures: dict[str, Any]) -> tuple[int, float]:
    return sum(figures["left"].values()), max(figures["client_mib"], figures["server_mib"])


def soak(calls: int) -> dict[str, Any]:
    blocks = max(1, calls // BLOCK // SAMPLES)  # from one sample to the next
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = Worker(stack, serve, f"{directory}/s")
        client = Worker(stack, be_client, server.hear())
        client.hear()
        client.ask(blocks)  # to warm up
        sides = {"client_mib": client, "server_mib": server}
        samples: dict[str, list[int]] = {name: [] for name in sides}
        began = time.perf_counter()
        for _ in range(SAMPLES):
            client.ask(blocks)
            for name, side in sides.items():
                samples[name].append(footprint([side.pid]))
        seconds = time.perf_counter() - began
        leftovers = [side.ask(0) for side in sides.values()]
    return {
        "calls": SAMPLES * blocks * BLOCK,
        "calls_per_s": SAMPLES * blocks * BLOCK / seconds,
        **{name: growth(values) / MIB for name, values in samples.items()},
        "samples": samples,
        "left": {kind: leftovers[0][kind] + leftovers[1][kind] for kind in leftovers[0]},
    }


def show(report: dict[str, Any]) -> None:
    leftovers = ", ".join(f"{n} {kind}" for kind, n in report["left"].items())
    print(f"\n{report['calls']:,} calls at {report['calls_per_s']:,.0f}/s")
    print(f"client +{report['client_mib']:.2f} MiB, server +{report['server_mib']:.2f} MiB")
    print(f"left after the close: {leftovers}")
