"""An argument that is a stream, as the method that is called sees it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from launchpad.courier.protocol import wire
from launchpad.courier.streams.incoming import Incoming

_loads = pickle.loads


class ArgumentStream(Iterator[Any]):
    """Iterates over what the caller's iterator gives, `for` or `async for`.

    Example:
        def learn(self, batches: Iterator[Batch]) -> float:
            return sum(self.step(batch) for batch in batches)

    An exception of the caller's iterator is raised here. When the method returns, or after `close`,
    the caller's iterator is closed. Any number of threads may take items; each goes to one of them.
    """

    def __init__(
        self,
        incoming: Incoming,
        wait: Callable[[threading.Lock], None],
        raise_end: Callable[[], None],
        cancel: Callable[[], None],
    ) -> None:
        self._incoming = incoming
        self._wait = wait
        self._raise_end = raise_end
        self._cancel = cancel

    def __next__(self) -> Any:
        while (frame := self._incoming.take()) is None:
            self._incoming.open()
            gate = threading.Lock()
            gate.acquire()
            self._incoming.notify(gate.release)
            self._wait(gate)
        if frame[0] == wire.END:
            self._raise_end()
            raise StopIteration
        return _loads(frame[3], buffers=frame[4])

    def __aiter__(self) -> ArgumentStream:
        return self

    async def __anext__(self) -> Any:
        while (frame := self._incoming.take()) is None:
            self._incoming.open()
            await self._wait_async()
        if frame[0] == wire.END:
            self._raise_end()
            raise StopAsyncIteration
        return _loads(frame[3], buffers=frame[4])

    async def _wait_async(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        self._incoming.notify(lambda: loop.call_soon_threadsafe(arrived.set))
        await arrived.wait()

    def close(self) -> None:
        """Wants no more: the caller's iterator is closed. Iterating goes no further."""
        self._cancel()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an argument that is a stream cannot be sent inside of another value, nor pickled: collect its "
            "items in a list"
        )

    async def aclose(self) -> None:
        """The same, for `contextlib.aclosing`."""
        self._cancel()
