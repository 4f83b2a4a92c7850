"""Calls between two actors of one Ray cluster: by courier, as launchpad makes them, and as Ray does.

Both pairs are on this host, started once, and take turns: in each round a burst of single calls and one of
many at once for either.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import launchpad as lp
from benchmarks.calls.contender import Contender, needs
from benchmarks.calls.contenders.timing import all_at_once, one_by_one
from benchmarks.calls.latency import percentiles
from benchmarks.calls.options import Options
from benchmarks.calls.pipelined import calls_per_s
from benchmarks.calls.spread import ratios, spread, with_range

CALLS = 4_000
OURS, THEIRS = "courier", "ray actor"
CONTENDERS = [Contender(THEIRS, lambda *_: None, lambda _: None, needs("ray"))]  # type: ignore[arg-type,return-value]


class Echo:
    """Answers with what it is given."""

    def echo(self, value: Any) -> Any:
        return value


class Caller:
    """Times calls of an Echo by courier."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def latency(self, seconds: float) -> tuple[float, float]:
        """p50 and p99 of single calls, in µs."""
        return percentiles(one_by_one(self._echo.echo), seconds)[:2]

    def rate(self, calls: int) -> float:
        """Calls per second of so many at once."""
        return calls_per_s(all_at_once(self._echo.futures.echo), calls)


class RayCaller:
    """Times calls of an Echo that is a Ray actor."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def latency(self, seconds: float) -> tuple[float, float]:
        import ray

        return percentiles(one_by_one(lambda v: ray.get(self._echo.echo.remote(v))), seconds)[:2]

    def rate(self, calls: int) -> float:
        import ray

        def call_all(n: int) -> None:
            assert ray.get([self._echo.echo.remote(i) for i in range(n)]) == list(range(n))

        return calls_per_s(call_all, calls)


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
    """Both in turn, round after round."""
    import ray

    seconds, calls = (0.1 if options.quick else 1.0), options.amount(CALLS, 500)
    found: dict[str, list[tuple[float, float, float]]] = {OURS: [], THEIRS: []}
    for _ in range(options.rounds):
        found[OURS].append((*ours.latency(seconds), ours.rate(calls)))
        latency = ray.get(theirs.latency.remote(seconds))
        found[THEIRS].append((*latency, ray.get(theirs.rate.remote(calls))))
    return summary(found)


def summary(found: dict[str, list[tuple[float, float, float]]]) -> dict[str, Any]:
    columns = {name: list(zip(*turns, strict=True)) for name, turns in found.items()}
    ours, theirs = columns[OURS], columns[THEIRS]
    rows = {
        name: {"p50_us": spread(p50), "p99_us": spread(p99), "calls_per_s": spread(rate)}
        for name, (p50, p99, rate) in columns.items()
    }
    return {
        **rows,
        "times_lower_latency": ratios(theirs[0], ours[0]),
        "times_more_calls": ratios(ours[2], theirs[2]),
    }


def show(report: dict[str, Any]) -> None:
    print(f"\n{'':14}{'p50 µs':>11}{'(range)':>22}{'p99 µs':>10}{'calls/s':>11}{'(range)':>22}")
    for name in (OURS, THEIRS):
        row = report[name]
        print(
            f"{name:14}{with_range(row['p50_us'])}{row['p99_us']['median']:10.0f}"
            f"{with_range(row['calls_per_s'], 0)}"
        )
