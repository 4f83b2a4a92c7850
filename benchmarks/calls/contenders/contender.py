"""A library whose calls are measured, and its client."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

PROTOCOL = 5  # of pickle, for all
COROUTINES = 200

Call = Callable[[Any], Any]


@dataclass
class Client:
    """A client of an echo, with one function for each way to call it. A contender need not have all.

    Args:
        call: Makes a blocking call.
        submit: Makes a call, and returns a future.
        call_all: Makes `n` calls, all of them in flight at once, and waits for the answers. The caller
            drops the result after it has stopped the clock.
        await_all: Makes `n` calls in COROUTINES coroutines, each of which makes one at a time.
        time_calls: Makes calls one at a time until the given seconds are over; returns the seconds of each.
    """

    call: Call
    submit: Callable[[Any], Any] | None = None
    call_all: Callable[[int], Any] | None = None
    await_all: Callable[[int], Any] | None = None
    time_calls: Callable[[float], list[float]] | None = None

    def __post_init__(self) -> None:
        self.call_all = self.call_all or self._submit_all
        self.time_calls = self.time_calls or self._time_calls

    def _submit_all(self, n: int) -> list[Any]:
        assert self.submit is not None
        submit = self.submit
        futures = [submit(i) for i in range(n)]
        for i, future in enumerate(futures):
            assert future.result() == i
        return futures

    def _time_calls(self, seconds: float) -> list[float]:
        call = self.call
        now = time.perf_counter
        times = []
        end = now() + seconds
        while (began := now()) < end:
            call(7)
            times.append(now() - began)
        return times


def by_call(client: Client, measure: Callable[[Call], Any]) -> Any:
    """Return the figures of `measure` for the blocking call."""
    return measure(client.call)


async def by_coroutines(call: Callable[[int], Awaitable[Any]], n: int) -> None:
    """Make `n` calls in COROUTINES coroutines, each of which makes one at a time."""

    async def keep_calling(n: int) -> None:
        for i in range(n):
            assert await call(i) == i

    await asyncio.gather(*[keep_calling(-(-n // COROUTINES)) for _ in range(COROUTINES)])


@dataclass(frozen=True)
class Contender:
    """A library to be measured.

    Args:
        name: Its name in tables.
        serve: Runs in a process of its own, as `serve(path, pipe)`. It may use the unix socket `path`, sends
            its address when it is ready, and serves until it is killed.
        connect: Runs in another process, and gives the Client for an address.
        needs: The module that it needs.
        why_not: Returns the reason if it cannot be measured here, else "".
        share: Its share of the work that other contenders do, if it takes very long.
    """

    name: str
    serve: Callable[[str, Connection], None]
    connect: Callable[[Any], AbstractContextManager[Any]]
    needs: str = ""
    why_not: Callable[[], str] = str
    share: float = 1.0

    def reason_to_skip(self) -> str:
        if self.needs and not importlib.util.find_spec(self.needs):
            return f"{self.needs} is not installed"
        return self.why_not()


def serve_nothing(path: str, pipe: Connection) -> None:
    """Serve nothing, because the client makes the server in its own process."""
    pipe.send(path)
    pipe.recv()
