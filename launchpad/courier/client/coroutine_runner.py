"""Runs coroutines for a thread that waits for them: those that step an async iterator."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_POLL_S = 0.1  # a loop that is closed leaves what was given to it last undone


class CoroutineRunner:
    """Runs coroutines, one at a time.

    On `loop`, for any thread but the loop's own; without one, on a loop of the thread that runs the first,
    and must run all the others and `close`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._runner: asyncio.Runner | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What it returns or raises. LoopIsClosed, when the loop is."""
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
            raise LoopIsClosed("the event loop of an async iterator was closed before its end")
        finally:
            coroutine.close()  # it may never have begun

    def close(self) -> None:
        """Closes a loop of our own."""
        if self._runner is not None:
            self._runner.close()


class LoopIsClosed(RuntimeError):
    """The loop that coroutines were to be run on is closed."""
