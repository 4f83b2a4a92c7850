"""20,000 calls of one client in flight at once: calls/s from the first call to the last answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.calls.contenders import batched, grpcio_generic, ours, uvloop_protocol, zeromq
from benchmarks.calls.contenders.contender import Client
from benchmarks.calls.pairs import Options, pinned, rates, show_rates, take_turns

CALLS = 20_000
CONTENDERS = [
    batched.RAW_BATCHED,
    ours.UNIX,
    ours.OVER_TCP,
    replace(ours.IN_PROCESS, share=0.2),
    uvloop_protocol.UVLOOP,
    zeromq.DEALER,
    # Beyond about 1,000 at once, grpcio cancels some of them now and then.
    replace(grpcio_generic.GRPCIO, share=0.05),
]


def measure(options: Options) -> dict[str, Any]:
    calls = options.amount(CALLS, 200)
    by_placement = take_turns(
        CONTENDERS,
        pinned(),
        options.rounds,
        lambda pair: pair.measure(calls_per_s, int(calls * pair.contender.share)),
    )
    return {
        placement: rates(turns, ["raw batched", "uvloop"])
        for placement, turns in by_placement.items()
    }


def calls_per_s(client: Client, n: int) -> float:
    assert client.call_all is not None
    return rate_of(client.call_all, n)


def rate_of(call_all: Callable[[int], Any], n: int) -> float:
    """Return the calls a second: the median of three bursts, after a small one."""
    call_all(n // 10)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        result = call_all(n)
        times.append(time.perf_counter() - began)
        del result  # to free 20,000 futures takes a while, too
    return n / sorted(times)[1]


def show(report: dict[str, Any]) -> None:
    for placement, rows in report.items():
        show_rates(placement, rows)
