"""Calls that an event loop waits for: `await client.aio.step(batch)`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier.client.stream import AsyncStream, Stream

if TYPE_CHECKING:
    from launchpad.courier.client.channel import Channel


class Aio:
    """The methods of a server, each returning something to await.

    Example:
        losses = await asyncio.gather(*(learner.aio.step(batch) for batch in batches))

    As with a coroutine, a call begins when it is awaited. Cancelling the task that awaits cancels
    the call. Errors are those of a plain call.
    """

    def __init__(self, channel: Channel, check_name: Callable[[str], bytes]) -> None:
        self._channel = channel
        self._check_name = check_name

    def __call__(self, *args: Any, **kwargs: Any) -> AioCall:
        return AioCall(self._channel, b"__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., AioCall]:
        method = partial(AioCall, self._channel, self._check_name(name))
        self.__dict__[name] = method
        return method


class AioCall:
    """One call, to be awaited once; or iterated over, if its result is a stream.

    Example:
        async for row in table.aio.rows("users"):
            ...

    What is awaited of a call with such a result is an AsyncStream.
    """

    def __init__(self, channel: Channel, method: bytes, /, *args: Any, **kwargs: Any) -> None:
        self._channel = channel
        self._method = method
        self._args = args
        self._kwargs = kwargs
        self._stream: AsyncStream | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._call().__await__()

    def __aiter__(self) -> AioCall:
        return self

    async def __anext__(self) -> Any:
        if self._stream is None:
            result = await self._call()
            if not isinstance(result, AsyncStream):
                raise TypeError(
                    f"{self._method.decode()!r} returned a {type(result).__name__}, which is no stream: "
                    "await the call in place of iterating over it"
                )
            self._stream = result
        return await self._stream.__anext__()

    async def _call(self) -> Any:
        import asyncio

        future = self._channel.submit(self._method, *self._args, **self._kwargs)
        result = await asyncio.wrap_future(future)
        return AsyncStream(result) if isinstance(result, Stream) else result
