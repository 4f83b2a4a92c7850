"""Long polls: waits at a server that are made of short calls, so that they end with the program.

client   Poll.ask(method, …) ── method(…, wait_s) ──▶ None: not yet ──▶ again, unless the program stops
server   `Changes.within(wait_s)`, in a coroutine: takes no thread, and ends when something has changed
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from launchpad.courier import CourierError, DeadlineExceeded
from launchpad.courier.deadlines import deadline_after
from launchpad.errors import Stopped
from launchpad.runtime import context

if TYPE_CHECKING:
    import asyncio

SLICE_S = 0.5
_MARGIN_S, _LONGEST_S = 0.5, 60.0
_END_S = 1.0
"""How long after a call has failed the program's stop may become known, which explains it."""


class Poll:
    """Calls of a client that may be repeated, and end with the program. Safe from any thread."""

    def __init__(self, client: Any) -> None:
        self._client = client.with_options(idempotent=True)

    def call(self, method: str, *args: Any) -> Any:
        """Calls once.

        Raises:
            Stopped: the program stops.
        """
        try:
            return getattr(self._client, method)(*args)
        except CourierError:
            _raise_if_stopping(_END_S)
            raise

    def ask(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Calls `method(*args, wait_s)` until it returns something else than None, which it returns.

        Raises:
            TimeoutError: the time was up before; without a text.
            Stopped: the program stops.
        """
        deadline = deadline_after(timeout_s)
        limit_s = SLICE_S + _MARGIN_S
        while True:
            _raise_if_stopping(0)
            left_s = SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            client = self._client.with_options(timeout_s=limit_s)
            try:
                answer = getattr(client, method)(*args, min(SLICE_S, left_s))
            except DeadlineExceeded:  # the server is being started again, or the answer is large
                limit_s, answer = min(2 * limit_s, _LONGEST_S), None
            except CourierError:
                _raise_if_stopping(_END_S)
                raise
            if answer is not None:
                return answer
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError


def _raise_if_stopping(within_s: float) -> None:
    me = context.try_current()
    if me is None:
        return
    if within_s and not me.link.is_inherited:  # a forked child is not asked to stop
        me.stop.event.wait(within_s)
    if me.stop.event.is_set():
        raise Stopped from None


class Changes:
    """Wakes the coroutines of one event loop that wait for a change."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    async def within(self, seconds: float) -> None:
        """Returns after the next change, or when the time is up."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        """Something has changed. Called on the event loop."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def wake_from_thread(self) -> None:
        """The same, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wake)
