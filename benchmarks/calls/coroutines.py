"""200 coroutines of one client process, each awaiting one call at a time: calls/s of all."""

from __future__ import annotations

from typing import Any

from benchmarks.calls import pipelined
from benchmarks.calls.contenders import ours, uvloop_protocol
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import Options, pinned, rates, take_turns

CALLS = 20_000
CONTENDERS = [
    uvloop_protocol.UVLOOP,
    ours.UNIX,
    ours.OVER_TCP,
]
show = pipelined.show


def measure(options: Options) -> dict[str, Any]:
    calls = options.amount(CALLS, 1000)
    by_placement = take_turns(
        CONTENDERS, pinned(), options.rounds, lambda pair: pair.measure(calls_per_s, calls)
    )
    return {placement: rates(turns, ["uvloop"]) for placement, turns in by_placement.items()}


def calls_per_s(client: Client, n: int) -> float:
    assert client.await_all is not None
    return pipelined.rate_of(client.await_all, n)
