"""Calls between two actors of one Ray cluster: by courier, as launchpad makes them, and as Ray does.

Both pairs are on this host, started once, and take turns: in each round a burst of single calls and one of
many at once for either.
"""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from typing import Any

import launchpad as lp
from benchmarks.calls.contenders.contender import Client, Contender, serve_nothing
from benchmarks.calls.latency import percentiles
from benchmarks.calls.pairs import Options
from benchmarks.calls.pipelined import rate_of
from benchmarks.harness.figures import Table, in_turns, ratios, spread

CALLS = 4_000
OURS = "courier"
THEIRS = "ray actor"
CONTENDERS = [Contender(THEIRS, serve_nothing, lambda _: nullcontext(), "ray")]


class Echo:
    """Answers with what it is given."""

    def echo(self, value: Any) -> Any:
        return value


class Caller:
    """Times calls of an Echo by courier."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def turn(self, seconds: float, calls: int) -> dict[str, float]:
        """Return percentiles of single calls, and the rate of so many at once."""
        return time_both(Client(self._echo.echo, self._echo.futures.echo), seconds, calls)


class RayCaller:
    """Times calls of an Echo that is a Ray actor."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def turn(self, seconds: float, calls: int) -> dict[str, float]:
        import ray

        def call(value: Any) -> Any:
            return ray.get(self._echo.echo.remote(value))

        def call_all(n: int) -> None:
            assert ray.get([self._echo.echo.remote(i) for i in range(n)]) == list(range(n))

        return time_both(Client(call, call_all=call_all), seconds, calls)


def time_both(client: Client, seconds: float, calls: int) -> dict[str, float]:
    assert client.call_all is not None
    return {**percentiles(client, seconds), "calls_per_s": rate_of(client.call_all, calls)}


def measure(options: Options) -> dict[str, Any]:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        with lp.launch(program(), "ray", terminal="output_to_files") as running:
            theirs = ray.remote(RayCaller).remote(ray.remote(Echo).remote())
            return rounds(running.client("caller"), theirs, options)
    finally:
        ray.shutdown()


def program() -> lp.Program:
    made = lp.Program("echo")
    echo = made.add_node(lp.CourierNode(Echo), label="echo")
    made.add_node(lp.CourierNode(Caller, echo), label="caller")
    return made


def rounds(ours: Any, theirs: Any, options: Options) -> dict[str, Any]:
    """Let both take turns, round after round."""
    import ray

    amounts = options.amount(1.0, 0.1), options.amount(CALLS, 500)
    contenders = {
        OURS: lambda: ours.turn(*amounts),
        THEIRS: lambda: ray.get(theirs.turn.remote(*amounts)),
    }
    turns = in_turns(contenders, options.rounds)

    def of(name: str, figure: str) -> list[float]:
        return [turn[figure] for turn in turns[name]]

    figures = ("p50_us", "p99_us", "calls_per_s")
    return {
        **{name: {figure: spread(of(name, figure)) for figure in figures} for name in turns},
        "times_lower_latency": ratios(of(THEIRS, "p50_us"), of(OURS, "p50_us")),
        "times_more_calls": ratios(of(OURS, "calls_per_s"), of(THEIRS, "calls_per_s")),
    }


def show(report: dict[str, Any]) -> None:
    print()
    table = Table("", {"p50 µs (range)": ",.1f", "p99 µs": ",.0f", "calls/s (range)": ",.0f"})
    for name in (OURS, THEIRS):
        table.row(name, *report[name].values())
