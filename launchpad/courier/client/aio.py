"""Calls that an event loop waits for, `await client.aio.step(batch)`, and streams that it iterates over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from launchpad.courier.client.aio_pipeline import LoopCall
from launchpad.courier.client.stream import Stream
from launchpad.courier.codec import pickling
from launchpad.courier.codec.iterators import StreamedIterator
from launchpad.courier.streams.receiver import NOT_HERE

if TYPE_CHECKING:
    from launchpad.courier.client.channel import Channel

_SCALARS = pickling.SCALARS


class AioCall(StreamedIterator, Coroutine[Any, Any, Any]):
    """One call, as a coroutine; or iterated over, if its result is a stream.

    As with any coroutine, the call begins when it is awaited: by `await`, `asyncio.create_task`,
    `asyncio.run` and all else that takes coroutines. Awaited once more it raises RuntimeError; never
    awaited, Python warns. Cancelling the task that awaits it cancels the call. Errors are those of a plain
    call.

    Example:
        async for row in table.aio.rows("users"):
            ...

    What is awaited of a call with such a result is an AsyncStream.
    """

    def __init__(self, channel: Channel, method: bytes, /, *args: Any, **kwargs: Any) -> None:
        self._method = method.decode()
        self._stream: AsyncStream | None = None
        # A function and not a method of ours: with a cycle, what is never awaited is noticed late.
        self._coroutine = _call(channel, method, args, kwargs)
        self.__qualname__ = f"aio.{self._method}"
        setattr(self._coroutine, "__qualname__", self.__qualname__)  # noqa: B010 - mypy knows none

    def __await__(self) -> Generator[Any, None, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Run until the next wait, as an event loop does."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in it, as an event loop does that cancels a task."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it: a call that has not begun never does."""
        self._coroutine.close()

    def __aiter__(self) -> AioCall:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._first() if self._stream is None else self._stream.__anext__()

    async def aclose(self) -> None:
        """Close it, and the stream that it is iterated over as."""
        self.close()
        if self._stream is not None:
            await self._stream.aclose()

    async def _first(self) -> Any:
        result = await self
        if not isinstance(result, AsyncStream):
            raise TypeError(
                f"{self._method!r} returned a {type(result).__name__}, which is no stream: "
                "await the call in place of iterating over it"
            )
        self._stream = result
        return await result.__anext__()


async def _call(
    channel: Channel, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make the call and wait for its result."""
    loop = asyncio.get_running_loop()
    call = channel.submit_in_loop(loop, method, args, kwargs)
    if type(call) is LoopCall:
        waiter = call.wait_in(loop)
        if waiter is not None:
            try:
                await waiter
            except BaseException:
                call.cancel()
                raise
        result = call.result()
    else:
        result = await asyncio.wrap_future(call)
    return AsyncStream(result) if type(result) is Stream else result


class AsyncStream(StreamedIterator, AsyncIterator[Any]):
    """Iterates over a Stream with `async for`. The event loop is never blocked; no thread is used.

    Example:
        async with AsyncStream(stream) as rows:
            async for row in rows:
                ...

    All of a Stream's documentation holds, but for threads: one coroutine at a time may wait for an item.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._call = stream._call
        self._take = self._call.incoming.take

    async def __anext__(self) -> Any:
        item = self._take()
        if type(item) in _SCALARS:
            return item
        if item is NOT_HERE:
            item = await self._wait_for_item()
        try:
            return self._call.decode_item(item)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Closes the server's iterator; iterating goes no further."""
        self._stream.close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _wait_for_item(self) -> Any:
        """What `take` gives when there is something."""
        now = time.monotonic()
        deadline = self._call.options.find_deadline(now)
        timeout = asyncio.timeout(None if deadline is None else max(0.0, deadline - now))
        try:
            async with timeout:
                while (item := self._take()) is NOT_HERE:
                    await self._wait()
                return item
        except TimeoutError:
            raise self._call.late() from None

    async def _wait(self) -> None:
        """Until something has happened to the stream."""
        loop = asyncio.get_running_loop()
        happened = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
                loop.call_soon_threadsafe(happened.set)

        self._call.incoming.notify(notify)  # another thread may read, or close
        sock = self._call.connection.sock  # None if nothing more will be read
        if sock is None:
            await happened.wait()
            return

        def read() -> None:
            self._call.connection.read_now()
            happened.set()

        loop.add_reader(sock, read)
        try:
            await happened.wait()
        finally:
            loop.remove_reader(sock)
