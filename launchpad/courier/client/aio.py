"""Calls for `await`, such as `await client.aio.step(batch)`, and streams for `async for`."""

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
    """One call, as a coroutine. If its result is a stream, you can iterate over the call itself.

    As with any coroutine, the call begins when it is awaited: by `await`, `asyncio.create_task`,
    `asyncio.run` or anything else that takes coroutines. If you await it a second time, it raises
    RuntimeError; if you never await it, Python warns. Cancelling the task that awaits it cancels the
    call. An awaited call raises the same errors as a plain call.

    Example:
        async for row in table.aio.rows("users"):
            ...

    Awaiting a call that is answered with a stream returns an AsyncStream.
    """

    def __init__(self, channel: Channel, method: bytes, /, *args: Any, **kwargs: Any) -> None:
        self._method = method.decode()
        self._stream: AsyncStream | None = None
        # `_call` isn't a method, because a method would make a cycle of references. If a call was never
        # awaited, Python would then notice that only at the next garbage collection.
        self._coroutine = _call(channel, method, args, kwargs)
        self.__qualname__ = f"aio.{self._method}"
        setattr(self._coroutine, "__qualname__", self.__qualname__)  # noqa: B010 - mypy knows no such attribute

    def __await__(self) -> Generator[Any, None, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Run the call until its next wait, as an event loop does."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in the call, as an event loop does to cancel a task."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the call. If the call has not begun, it never runs."""
        self._coroutine.close()

    def __aiter__(self) -> AioCall:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._first() if self._stream is None else self._stream.__anext__()

    async def aclose(self) -> None:
        """Close the call, and its stream if one was being iterated over."""
        self.close()
        if self._stream is not None:
            await self._stream.aclose()

    async def _first(self) -> Any:
        result = await self
        if not isinstance(result, AsyncStream):
            raise TypeError(
                f"{self._method!r} returned a {type(result).__name__}, which is not a stream: "
                "await the call instead of iterating over it"
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
    """An async iterator over a Stream. It never blocks the event loop, and uses no thread.

    Example:
        async with AsyncStream(stream) as rows:
            async for row in rows:
                ...

    The documentation of Stream holds here too, except for what it says about threads: here, only one
    coroutine at a time may wait for an item.
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
        """Close the server's iterator and end the iteration."""
        self._stream.close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _wait_for_item(self) -> Any:
        """Wait until there is an item, or the end of the stream, and return it as `take` does."""
        now = time.monotonic()
        deadline = self._call.options.find_deadline(now)
        timeout = asyncio.timeout(None if deadline is None else max(0.0, deadline - now))
        try:
            async with timeout:
                while True:
                    item = self._take()
                    if item is not NOT_HERE:
                        return item
                    await self._wait()
        except TimeoutError:
            raise self._call.late() from None

    async def _wait(self) -> None:
        """Wait until something happens to the stream."""
        loop = asyncio.get_running_loop()
        happened = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
                loop.call_soon_threadsafe(happened.set)

        self._call.incoming.notify(notify)  # another thread may read, or close the stream
        sock = self._call.connection.sock  # None if nothing more will be read
        if sock is None:
            await happened.wait()
            return

        def on_readable() -> None:
            self._call.connection.read_now()
            happened.set()

        loop.add_reader(sock, on_readable)
        try:
            await happened.wait()
        finally:
            loop.remove_reader(sock)
