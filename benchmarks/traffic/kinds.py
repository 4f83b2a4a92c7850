"""The kinds of calls. Each makes some, and raises if what comes back is not what it should be.

A caller's clients have a deadline of `DEADLINE_S`: a call that is not answered by then is stuck, since
nothing here takes longer than a moment. The kinds called `late` have one that is sure to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

from benchmarks.traffic.service import AskedError
from launchpad import courier

DEADLINE_S = 30.0
SLACK_S = 5.0  # that a deadline may be missed by, where many threads share few cores
NAP_S = 0.2
_MOST_LEFT = 4


class Caller:
    """The clients and the chance of one thread; it shares the clients with the other threads."""

    def __init__(self, clients: dict[str, Any], seed: int) -> None:
        self.clients = clients
        self.random = random.Random(seed)
        #: Streams that were left in the middle, and are still referenced.
        self.left: deque[Any] = deque(maxlen=_MOST_LEFT)
        #: Calls with a deadline that is sure to pass; and those that were answered all the same.
        self.n_late = 0
        self.n_answered = 0

    def pick(self) -> tuple[str, Any]:
        return self.random.choice(list(self.clients.items()))

    def either(self, methods: Any, name: str) -> Any:
        """Return a remote method, or the coroutine of the same sense."""
        return getattr(methods, name if self.random.random() < 0.5 else f"a{name}")


def expect(is_so: bool, what: object) -> None:
    if not is_so:
        raise AssertionError(f"not what was expected: {what!r:.200}")


@contextlib.contextmanager
def deadline(caller: Caller, seconds: float) -> Iterator[None]:
    """Require that the block raises DeadlineExceeded, and in time.

    A thread that got no processor while a call of `nap` ran finds its answer, and may return that: rarely.
    """
    caller.n_late += 1
    began = time.monotonic()
    try:
        yield
    except courier.DeadlineExceeded:
        took_s = time.monotonic() - began
        expect(took_s < seconds + SLACK_S, f"{took_s:.1f} s with a deadline of {seconds} s")
        return
    took_s = time.monotonic() - began
    expect(NAP_S < took_s < NAP_S + SLACK_S, f"an answer after {took_s:.1f} s, past a deadline")
    caller.n_answered += 1


@contextlib.contextmanager
def asked_error() -> Iterator[None]:
    """Require that the block raises what the method was asked for."""
    try:
        yield
    except AskedError:
        return
    raise AssertionError("the exception did not arrive")


def failing(n: int) -> Iterator[int]:
    yield from range(n)
    raise AskedError("iterator")


async def acount(n: int | None = None) -> AsyncIterator[int]:
    for i in itertools.count() if n is None else range(n):
        await asyncio.sleep(0)
        yield i


class ThreadCaller(Caller):
    """Calls of a thread: each public method is a kind."""

    def call(self, client: Any) -> None:
        for value in (1, "text", b"x" * 1000, [1, {"a": 2}], b"y" * 100_000):
            expect(self.either(client, "echo")(value) == value, value)

    def array(self, client: Any) -> None:
        import numpy as np

        found = client.echo(np.full(1 << 18, 7, np.float32))
        expect(found.shape == (1 << 18,) and found[-1] == 7, found)

    def relay(self, client: Any) -> None:
        expect(client.relay("on") == "on", "relay")

    def futures(self, client: Any) -> None:
        made = [self.either(client.futures, "echo")(i) for i in range(30)]
        expect([future.result() for future in made] == list(range(30)), "futures")

    def cancelled_futures(self, client: Any) -> None:
        made = [self.either(client.futures, "nap")(0.01) for _ in range(4)]
        for future in made:
            future.cancel()
        for future in made:
            with contextlib.suppress(CancelledError):
                expect(future.result() == 0.01, "nap")

    def callbacks(self, client: Any) -> None:
        called = threading.Event()

        def ask_again(_: object) -> None:
            expect(client.futures.echo(2).result() == 2, "a call of a callback")
            called.set()

        client.futures.echo(1).add_done_callback(ask_again)
        expect(called.wait(DEADLINE_S), "a callback")

    def late(self, client: Any) -> None:
        timeout_s = self.random.choice((0.001, 0.01, 0.05))
        with deadline(self, timeout_s):
            self.either(client.with_options(timeout_s=timeout_s), "nap")(NAP_S)

    def late_future(self, client: Any) -> None:
        with deadline(self, 0.02):
            self.either(client.with_options(timeout_s=0.02).futures, "nap")(NAP_S).result()

    def late_stream(self, client: Any) -> None:
        with deadline(self, 0.02):
            client.with_options(timeout_s=0.02).add_up(itertools.count())

    def fail(self, client: Any) -> None:
        with asked_error():
            self.either(client, "fail")("call")
        with asked_error():
            self.either(client.futures, "fail")("future").result()
        with asked_error():
            list(self.either(client, "rows")(70, 10, True))
        with asked_error():
            self.either(client, "add_up")(failing(70))

    def leave(self, client: Any) -> None:
        try:
            self.either(client, "leave")()
        except courier.RemoteError as error:
            expect(error.type_name == "SystemExit", error)
            return
        raise AssertionError("SystemExit did not arrive")

    def rows(self, client: Any) -> None:
        n = self.random.choice((0, 1, 50, 300))
        found = [len(row) for row in self.either(client, "rows")(n, 1000)]
        expect(found == [1000] * n, found)

    def large_rows(self, client: Any) -> None:
        found = sum(len(row) for row in self.either(client, "rows")(20, 1 << 18))
        expect(found == 20 << 18, found)

    def rows_left(self, client: Any) -> None:
        stream = self.either(client, "rows")(10_000, 1000)
        for _ in stream:
            break
        self.left.append(stream)

    def rows_closed(self, client: Any) -> None:
        with self.either(client, "rows")(10_000, 1000) as stream:
            next(stream)
        expect(next(stream, None) is None, "a closed stream")

    def rows_dropped(self, client: Any) -> None:
        next(self.either(client, "rows")(10_000, 1000))

    def rows_of_a_future(self, client: Any) -> None:
        stream = self.either(client.futures, "rows")(50, 1000).result()
        expect(sum(map(len, stream)) == 50_000, "rows of a future")

    def rows_of_a_cancelled_future(self, client: Any) -> None:
        future = self.either(client.futures, "rows")(50, 1000)
        if not future.cancel():
            future.result().close()

    def add_up(self, client: Any) -> None:
        n = self.random.choice((0, 1, 100, 300))
        expect(self.either(client, "add_up")(iter(range(n))) == n * (n - 1) // 2, n)

    def add_up_in_part(self, client: Any) -> None:
        found = self.either(client, "add_up")(itertools.count(), 100)
        expect(found == 4950, found)
        expect(client.closes(itertools.count()) == "closed", "closes")

    def fed_future(self, client: Any) -> None:
        found = self.either(client.futures, "add_up")(iter(range(100))).result()
        expect(found == 4950, found)

    def fed_future_cancelled(self, client: Any) -> None:
        future = self.either(client.futures, "add_up")(itertools.count())
        future.cancel()
        expect(future.cancelled(), "a future that feeds for ever")

    def dialogue(self, client: Any) -> None:
        found = list(self.either(client, "dialogue")(iter(range(200))))
        expect(found == list(range(0, 400, 2)), found)

    def dialogue_left(self, client: Any) -> None:
        stream = self.either(client, "dialogue")(itertools.count())
        expect([next(stream) for _ in range(5)] == [0, 2, 4, 6, 8], "dialogue")
        if self.random.random() < 0.5:
            self.left.append(stream)

    def reconnect(self, client: Any) -> None:
        with courier.Client[Any](client.address, call_timeout=DEADLINE_S) as other:
            expect(other.echo(1) == 1, "echo")
            expect(other.futures.echo(2).result() == 2, "echo")
            expect(len(list(other.rows(3, 3))) == 3, "rows")

    def alternating(self, client: Any) -> None:
        for _ in range(10):
            self.add_up(client)
            self.rows(client)


class LoopCaller(Caller):
    """Calls of an event loop: each public method is a kind."""

    async def aio_call(self, client: Any) -> None:
        calls = (self.either(client.aio, "echo")(i) for i in range(20))
        expect(await asyncio.gather(*calls) == list(range(20)), "gather")

    async def aio_cancelled(self, client: Any) -> None:
        async def nap() -> None:
            await self.either(client.aio, "nap")(NAP_S)

        task = asyncio.ensure_future(nap())
        await asyncio.sleep(self.random.choice((0, 0.001, 0.01)))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def aio_late(self, client: Any) -> None:
        with deadline(self, 0.02):
            await self.either(client.with_options(timeout_s=0.02).aio, "nap")(NAP_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.aio.anap(NAP_S)
                raise AssertionError("the timeout was not kept")

    async def aio_fail(self, client: Any) -> None:
        with asked_error():
            await self.either(client.aio, "fail")("aio")
        with asked_error():
            async for _ in self.either(client.aio, "rows")(70, 10, True):
                pass

    async def aio_rows(self, client: Any) -> None:
        found = [len(row) async for row in self.either(client.aio, "rows")(200, 1000)]
        expect(found == [1000] * 200, found)

    async def aio_rows_left(self, client: Any) -> None:
        stream = await self.either(client.aio, "rows")(10_000, 1000)
        async for _ in stream:
            break
        self.left.append(stream)

    async def aio_rows_cancelled(self, client: Any) -> None:
        async def read() -> None:
            async for _ in self.either(client.aio, "rows")(10_000, 1000):
                await asyncio.sleep(0)

        task = asyncio.ensure_future(read())
        await asyncio.sleep(self.random.choice((0, 0.001, 0.01)))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def aio_add_up(self, client: Any) -> None:
        found = await self.either(client.aio, "add_up")(acount(100))
        expect(found == 4950, found)
        found = await self.either(client.aio, "add_up")(acount(), 10)
        expect(found == 45, found)

    async def aio_dialogue(self, client: Any) -> None:
        talk = self.either(client.aio, "dialogue")(acount(100))
        found = [item async for item in talk]
        expect(found == list(range(0, 200, 2)), found)


def _kinds(of: type[Caller]) -> tuple[Callable[[Any, Any], Any], ...]:
    return tuple(method for name, method in vars(of).items() if not name.startswith("_"))


KINDS = _kinds(ThreadCaller)
AIO_KINDS = _kinds(LoopCaller)
