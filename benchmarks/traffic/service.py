"""The service on each carrier: a plain method and a coroutine for each kind of call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from launchpad import courier


class AskedError(Exception):
    """The exception that a method raises when it is asked to."""


class Service:
    """The methods; `n_open` counts the generators that have begun and have not been closed."""

    def __init__(self, next_address: Callable[[], str]) -> None:
        self._next_address = next_address
        self._lock = threading.Lock()
        self._next: courier.Client[Any] | None = None
        self._n_open = 0

    def echo(self, value: Any) -> Any:
        return value

    async def aecho(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def nap(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    async def anap(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    def fail(self, text: str) -> None:
        raise AskedError(text)

    async def afail(self, text: str) -> None:
        raise AskedError(text)

    def leave(self) -> None:
        raise SystemExit(3)

    async def aleave(self) -> None:
        raise SystemExit(3)

    def relay(self, value: Any) -> Any:
        """Ask the next server."""
        with self._lock:
            if self._next is None:
                self._next = courier.Client(self._next_address())
        return self._next.echo(value)

    def rows(self, n: int, size: int, fails: bool = False) -> Iterator[bytes]:
        self._count(1)
        try:
            for _ in range(n):
                yield bytes(size)
            if fails:
                raise AskedError("rows")
        finally:
            self._count(-1)

    async def arows(self, n: int, size: int, fails: bool = False) -> AsyncIterator[bytes]:
        self._count(1)
        try:
            for i in range(n):
                if not i % 10:
                    await asyncio.sleep(0)
                yield bytes(size)
            if fails:
                raise AskedError("rows")
        finally:
            self._count(-1)

    def add_up(self, items: Iterator[int], at_most: int = 1 << 62) -> int:
        """Return the sum of the first items; the others are not asked for."""
        total = 0
        for _, item in zip(range(at_most), items, strict=False):
            total += item
        return total

    async def aadd_up(self, items: AsyncIterator[int], at_most: int = 1 << 62) -> int:
        total = 0
        async for item in items:
            total += item
            at_most -= 1
            if not at_most:
                break
        return total

    def closes(self, items: Any) -> str:
        """Close its argument, and go on."""
        next(items)
        items.close()
        return "closed"

    def dialogue(self, items: Iterator[int]) -> Iterator[int]:
        self._count(1)
        try:
            for item in items:
                yield 2 * item
        finally:
            self._count(-1)

    async def adialogue(self, items: AsyncIterator[int]) -> AsyncIterator[int]:
        self._count(1)
        try:
            async for item in items:
                yield 2 * item
        finally:
            self._count(-1)

    def rest(self) -> int:
        """Close our own client, for there is a pause; return how many generators are open."""
        with self._lock:
            if self._next is not None:
                courier.close(self._next)
            return self._n_open

    def _count(self, n: int) -> None:
        with self._lock:
            self._n_open += n


def start(address: str, token: bytes, next_address: Callable[[], str]) -> courier.Server:
    """A server of all of it."""
    service = Service(next_address)
    server = courier.Server(f"mixed-{address.partition(':')[0]}", address=address, token=token)
    for name in dir(Service):
        if not name.startswith("_"):
            server.bind(name, getattr(service, name))
    server.start()
    return server
