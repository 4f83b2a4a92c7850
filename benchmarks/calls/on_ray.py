"""Calls between two actors of one Ray cluster: by courier, as launchpad makes them, and as Ray does.

Both pairs run on this host, start once, and take turns. In each round, either pair makes single calls, then
many calls at once.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import launchpad as lp
from benchmarks.calls.contenders import ray_actors
from benchmarks.calls.contenders.contender import Client, Contender, serve_nothing
from benchmarks.calls.latency import percentiles
from benchmarks.calls.pairs import Options
from benchmarks.calls.pipelined import rate_of
from benchmarks.harness.figures import Table, in_turns, ratios, spread
from benchmarks.harness.programs import launch

CALLS = 4_000
OURS = "courier"
THEIRS = "ray actor"
CONTENDERS = [Contender(THEIRS, serve_nothing, lambda _: nullcontext(), "ray")]


class Caller:
    """A node that times calls of an Echo by courier."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    def turn(self, seconds: float, calls: int) -> dict[str, float]:
        """Return percentiles of single calls, and the rate of `calls` calls at once."""
        return time_both(Client(self._echo.echo, self._echo.futures.echo), seconds, calls)


def time_both(client: Client, seconds: float, calls: int) -> dict[str, float]:
    assert client.call_all is not None
    return {**percentiles(client, seconds), "calls_per_s": rate_of(client.call_all, calls)}


def measure(options: Options) -> dict[str, Any]:
    program = lp.Program("echo")
    echo = program.add_node(lp.CourierNode(ray_actors.Echo), label="echo")
    program.add_node(lp.CourierNode(Caller, echo), label="caller")
    amounts = options.amount(1.0, 0.1), options.amount(CALLS, 500)
    with (
        ray_actors.cluster(),
        launch(program, "ray") as running,
    ):
        contenders = {
            OURS: partial(running.client("caller").turn, *amounts),
            THEIRS: partial(ray_actors.start(), time_both, *amounts),
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
