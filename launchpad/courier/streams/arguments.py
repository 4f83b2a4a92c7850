"""Arguments that are iterators: they stay with the caller, and their items follow the call.

    caller: take_out ──▶ pickled with a Placeholder each ──▶ server: unpickled as ArgumentStreams

A Placeholder unpickles by asking the reader of the call for the stream of its number, so that
neither the method nor the code that calls it has to know of any of this.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

if TYPE_CHECKING:
    import asyncio

_COUNT = struct.Struct("<H")
_END = object()
_POLL_S = 0.1  # a loop that is closed leaves what was given to it last undone

#: Set while a call that has streams among its arguments is unpickled.
opening: ContextVar[Callable[[int], Any] | None] = ContextVar("courier_opening", default=None)


class Placeholder:
    """Stands among pickled arguments for the stream of this number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return open_argument, (self._number,)


def open_argument(number: int) -> Any:
    """The iterator over an argument of the call that is being unpickled."""
    find = opening.get()
    if find is None:
        raise ProtocolError("an argument that is a stream, in a call that has none")
    return find(number)


def take_out(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], list[Any]]:
    """The arguments with placeholders for the iterators among them, and these, in order of number.

    Numbers begin at 1. An iterator that is given twice is one stream.
    """
    found: list[Any] = []

    def replace(value: Any) -> Any:
        if not pickling.is_stream(value):
            return value
        for number, known in enumerate(found, 1):
            if known is value:
                return Placeholder(number)
        found.append(value)
        return Placeholder(len(found))

    taken = tuple(replace(value) for value in args)
    return taken, {name: replace(value) for name, value in kwargs.items()}, found


def encode_count(n: int) -> bytes:
    """The notes of a call of whose arguments `n` are streams."""
    return framing.encode_headers({framing.ARGUMENT_STREAMS: _COUNT.pack(n)})


def decode_count(header: bytes) -> int:
    """How many arguments of the call with this note are streams."""
    if len(header) != _COUNT.size:
        raise ProtocolError("a count of streams that is none")
    return int(_COUNT.unpack(header)[0])


class SyncIterator(Iterator[Any]):
    """A plain iterator over what an async iterator gives, which is stepped from a thread.

    Its coroutines run on `loop`, from any thread but the loop's own; without one, on a loop of the
    thread that takes the first item, and must take all the others.
    """

    def __init__(self, iterator: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._iterator = iterator
        self._loop = loop
        self._runner: asyncio.Runner | None = None
        self._has_begun = False
        self._is_interrupted = False
        self._step_task: asyncio.Task[Any] | None = None  # while a step waits

    def __next__(self) -> Any:
        self._has_begun = True
        item = self._run(self._step())
        if item is _END:
            raise StopIteration
        return item

    def courier_interrupt(self) -> None:
        """Cancels the step that is under way, and any later one. From any thread."""
        self._is_interrupted = True
        if (task := self._step_task) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Closes the async iterator, if it has begun and can be closed, and our loop."""
        from concurrent.futures import CancelledError

        if self._has_begun and (close := getattr(self._iterator, "aclose", None)) is not None:
            # A loop that ends cancels what runs on it, and closes its generators.
            with contextlib.suppress(_LoopIsClosed, CancelledError):
                self._run(_await(close))
        if self._runner is not None:
            self._runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio
        from concurrent.futures import wait

        loop = self._loop
        if loop is None:
            self._runner = self._runner or asyncio.Runner()
            return self._runner.run(coroutine)
        try:
            if not loop.is_closed():
                future = asyncio.run_coroutine_threadsafe(coroutine, loop)
                while not wait((future,), _POLL_S).done and not loop.is_closed():
                    pass
                if future.done():
                    return future.result()
            raise _LoopIsClosed("the event loop of an async iterator was closed before its end")
        finally:
            coroutine.close()  # it may never have begun

    async def _step(self) -> Any:
        import asyncio

        self._step_task = asyncio.current_task()
        try:
            if self._is_interrupted:
                raise asyncio.CancelledError
            return await self._iterator.__anext__()
        except StopAsyncIteration:
            return _END
        finally:
            self._step_task = None


async def _await(make: Callable[[], Any]) -> Any:
    return await make()


class _LoopIsClosed(RuntimeError):
    """The loop that an async iterator was to be stepped on is closed."""
