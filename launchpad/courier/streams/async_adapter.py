"""An async iterator stepped from a thread, which then looks like a plain one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import wait
from typing import Any

_END = object()
_POLL_S = 0.1  # a loop that is closed leaves what was given to it last undone


class _LoopIsClosed(RuntimeError):
    """So there is nobody to step an iterator any more."""


class SyncIterator(Iterator[Any]):
    """A plain iterator over what an async iterator gives.

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
        if self._has_begun and (close := getattr(self._iterator, "aclose", None)) is not None:
            with contextlib.suppress(_LoopIsClosed):  # which has closed its generators
                self._run(_await(close))
        if self._runner is not None:
            self._runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is not None:
            return self._run_over_there(coroutine, self._loop)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def _run_over_there(
        self, coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop
    ) -> Any:
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
