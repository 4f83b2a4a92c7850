"""A good client, which keeps calling while others send garbage."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness.figures import percentile
from benchmarks.hostile.target import Target
from launchpad import courier

NEW_CLIENT_EVERY = 200  # calls: then a new client connects, for one call


def watch(target: Target, pipe: Connection) -> None:
    """Call from one message of the pipe to the next, and then send what it has measured."""
    with target.client() as client:
        client.echo(0)
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send(call_until_message(target, client, pipe))


def call_until_message(target: Target, client: Any, pipe: Connection) -> dict[str, Any]:
    times_us: list[float] = []
    new_clients_ms: list[float] = []
    errors: list[str] = []
    i = 0
    while not pipe.poll():
        i += 1
        began = time.perf_counter()
        try:
            if i % NEW_CLIENT_EVERY == 0:
                call_as_new_client(target, i)
                new_clients_ms.append((time.perf_counter() - began) * 1e3)
            else:
                assert client.echo(i) == i
                times_us.append((time.perf_counter() - began) * 1e6)
        except Exception as error:
            errors.append(repr(error)[:200])
    pipe.recv()
    return {
        "calls": i,
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "p50_us": quantile(times_us, 50),
        "p99_us": quantile(times_us, 99),
        "new_client_p99_ms": quantile(new_clients_ms, 99),
    }


def call_as_new_client(target: Target, i: int) -> None:
    with courier.Client[Any](target.address, token=target.token) as client:
        assert client.echo(i) == i


def quantile(figures: list[float], percent: int) -> float:
    return percentile(figures, percent) if figures else float("nan")
