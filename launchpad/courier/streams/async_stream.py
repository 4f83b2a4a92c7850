"""A stream, for coroutines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from launchpad.courier.streams.stream import Stream


class AsyncStream(AsyncIterator[Any]):
    """Iterates over a Stream with `async for`. The event loop is never blocked; no thread is used.

    Example:
        async with AsyncStream(stream) as rows:
            async for row in rows:
                ...

    All that is said of a Stream holds, but for threads: one coroutine at a time may wait for an item.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._call = stream._call

    async def __anext__(self) -> Any:
        is_here, item = self._try_take()
        if is_here:
            return item
        try:
            async with asyncio.timeout(self._call.time_left()):
                return await self._wait_and_take()
        except TimeoutError as error:
            if error.__class__ is TimeoutError:  # not one of the stream's own
                raise self._call.late() from None
            raise

    async def aclose(self) -> None:
        """Closes the server's iterator; iterating goes no further."""
        self._stream.close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _try_take(self) -> tuple[bool, Any]:
        try:
            return self._call.try_take()
        except StopIteration:
            raise StopAsyncIteration from None

    async def _wait_and_take(self) -> Any:
        while True:
            await self._wait()
            is_here, item = self._try_take()
            if is_here:
                return item

    async def _wait(self) -> None:
        """Until something has happened to the stream."""
        loop = asyncio.get_running_loop()
        happened = asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(happened.set)

        self._call.notify(tell)  # another thread may read, or close
        sock = self._call.sock
        if sock is None:
            await happened.wait()
            return
        loop.add_reader(sock, self._read, happened)
        try:
            await happened.wait()
        finally:
            loop.remove_reader(sock)

    def _read(self, happened: asyncio.Event) -> None:
        self._call.read_now()
        happened.set()
