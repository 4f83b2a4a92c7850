"""The two shapes in which calls are timed, for RPCs whose calls are functions that block.

One by one: `time_calls(seconds)` gives the seconds that each call took.
All at once: `call_all(n)` returns when n calls, all of them in flight at once, have been answered;
what it returns is to be thrown away when the clock has been stopped.
An RPC whose calls are of another kind (a coroutine, a message) brings its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

TimeCalls = Callable[[float], list[float]]
CallAll = Callable[[int], Any]
COROUTINES = 200


def one_by_one(call: Callable[[int], Any]) -> TimeCalls:
    def time_calls(seconds: float) -> list[float]:
        now = time.perf_counter
        times = []
        end = now() + seconds
        while (began := now()) < end:
            call(7)
            times.append(now() - began)
        return times

    return time_calls


def all_at_once(submit: Callable[[int], Future[Any]]) -> CallAll:
    def call_all(n: int) -> list[Future[Any]]:
        futures = [submit(i) for i in range(n)]
        for i, future in enumerate(futures):
            assert future.result() == i
        return futures

    return call_all


async def by_coroutines(call: Callable[[int], Awaitable[Any]], n: int) -> None:
    """`n` calls of `COROUTINES` coroutines, each of which makes one at a time."""

    async def keep_calling(n: int) -> None:
        for i in range(n):
            assert await call(i) == i

    await asyncio.gather(*[keep_calling(-(-n // COROUTINES)) for _ in range(COROUTINES)])
