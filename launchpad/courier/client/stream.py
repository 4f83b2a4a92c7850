"""A stream of items from a server, as its consumer sees it: a thread, or a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

from launchpad.courier.client.stream_call import StreamCall, StreamEndListener


class Stream(Iterator[Any]):
    """What a call returns when the method returns an iterator, as a generator does.

    Example:
        with client.rows(table="users") as rows:    # or: for row in client.rows("users"): …
            for row in rows:
                if wanted(row):
                    break

    The server makes items from the call on, at most a window (64 items, 8 MiB) ahead of what has
    been taken here. The end of the server's iterator ends this one; its exception is raised here,
    after all items before it. When the connection is lost, StreamBroken is raised.

    `close`, the end of the block, or dropping the stream closes the server's iterator: the `finally`
    of a generator runs. The client's timeout limits the call and the wait for each item; past it
    DeadlineExceeded is raised, and the stream is open still. Any number of threads may take items;
    each goes to one of them.
    """

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self._abandon = weakref.finalize(self, call.abandon)

    def __next__(self) -> Any:
        return self._call.take()

    def close(self) -> None:
        """Closes the server's iterator; iterating goes no further. Nothing happens the second time."""
        self._abandon.detach()
        self._call.close()

    def watch(self, listener: StreamEndListener) -> None:
        """Calls the listener at the end of the stream."""
        self._call.listener = listener

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a stream cannot be sent inside of another value, nor pickled: give it to a call as an argument "
            "of its own, or collect its items in a list"
        )


class AsyncStream(AsyncIterator[Any]):
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

    async def __anext__(self) -> Any:
        is_here, item = self._try_take()
        if is_here:
            return item
        try:
            async with asyncio.timeout(self._call.time_left()):
                while not is_here:
                    await self._wait()
                    is_here, item = self._try_take()
                return item
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

    async def _wait(self) -> None:
        """Until something has happened to the stream."""
        loop = asyncio.get_running_loop()
        happened = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
                loop.call_soon_threadsafe(happened.set)

        self._call.notify(notify)  # another thread may read, or close
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
