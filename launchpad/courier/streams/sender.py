"""The sending end of a stream: it steps the iterator while the other side has room (outgoing.py).

There is no I/O here and there are no threads: the caller pulls.

We can't know if the next item will come quickly, so we guess from the items before it. A slow item, and
those that follow it, go at once, each in its own frame. After several quick items in a row the next ones
share frames. If the iterator then blocks, another thread puts the items that wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.codec import pickling
from launchpad.courier.streams.items import SHARED_ITEMS
from launchpad.courier.streams.outgoing import OutgoingItems

_QUICK_S = 25e-6  # an item that took longer goes at once
_STEADY_AFTER = 8  # quick items in a row, after which the next ones may wait for each other
_HOLD_S = 1e-3  # the longest that an item waits for others

_monotonic = time.monotonic


class StreamSender:
    """An iterator, sync or async, on its way to the other side.

    Its steps must run in `context`, a copy of the context in which the sender was made.

    Args:
        iterator: The iterator. It has `__next__`, or else `__anext__`.
        number: The number of the stream within its call; 0 is the result.
        call_context: The call whose result the stream is. For each item, the calls that the iterator makes
            have as much time as that call had, because the consumer waits that long for an item.

    One thread at a time may pull or close it.
    """

    def __init__(
        self, iterator: Any, number: int = 0, call_context: CallContext | None = None
    ) -> None:
        self.items = OutgoingItems(number)
        self.is_async = not hasattr(type(iterator), "__next__")
        self.context = copy_context()
        # Called with the error that the stream ended with.
        self.on_close: Callable[[bytes], object] | None = None
        self.is_cancelled = False  # no further item is wanted
        self._n_quick = 0  # quick items in a row
        self._yield_at = 0.0  # when the event loop must get to run its other tasks
        self._iterator = iterator
        self._trace = b"" if call_context is None else call_context.trace
        deadline = None if call_context is None else call_context.deadline
        self._step_s = None if deadline is None else max(0.0, deadline - time.monotonic())

    def pull(self, hold: Callable[[], bool]) -> None:
        """Take the next item. If the last items came quickly, take more for as long as they do.

        The items wait until the caller calls `items.put_waiting`, which it must do next. Before an item waits
        for the next one, this calls `hold()`. If `hold()` returns True, another thread will call
        `items.put_waiting` when the iterator blocks. If not, this takes only one item.
        """
        most = self._begin_frame()
        room = SHARED_ITEMS
        step = self._iterator.__next__
        add = self.items.add
        is_steady = self._n_quick >= _STEADY_AFTER and self.items.may_share and hold()
        now = _monotonic()
        until = now + _HOLD_S
        for _ in range(most):
            try:
                item = step()
            except StopIteration:
                return self.items.put_end(b"")
            except BaseException as error:  # SystemExit too: a consumer must not end its server
                return self.items.put_end(pickling.encode_error(error))
            room -= add(item)
            before = now
            now = _monotonic()
            if now - before >= _QUICK_S:
                self._n_quick = 0
                return None
            if not is_steady:
                self._n_quick += 1
                return None
            if room <= 0 or now >= until or self.is_cancelled:
                return None
        return None

    async def pull_async(self, put_soon: Callable[[], object]) -> None:
        """Take the next items of an async iterator, as `pull` does.

        When an item begins to wait, this calls `put_soon()`. The event loop then calls `items.put_waiting` as
        soon as it runs anything else, so no item waits while the iterator itself waits. Every millisecond the
        loop gets to run other tasks, even if the iterator waits for nothing.
        """
        import asyncio

        most = self._begin_frame()
        room = SHARED_ITEMS
        step = self._iterator.__anext__
        add = self.items.add
        waiting = self.items.waiting
        now = _monotonic()
        if now >= self._yield_at:
            await asyncio.sleep(0)
            now = _monotonic()
            self._yield_at = now + _HOLD_S
        until = now + _HOLD_S
        for _ in range(0 if self.is_cancelled else most):
            try:
                item = await step()
            except StopAsyncIteration:
                return self.items.put_end(b"")
            # A CancelledError is not caught, because it is meant for us.
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                return self.items.put_end(pickling.encode_error(error))
            before = now
            now = _monotonic()
            is_last = now - before >= _QUICK_S or now >= until or self.is_cancelled
            if not is_last and not waiting:
                put_soon()
            room -= add(item)
            if is_last or room <= 0:
                return None
        return None

    def fail(self, error: BaseException) -> None:
        """End the stream, unless it has ended, with this error of the code that steps the iterator."""
        if not self.items.has_ended:
            self.items.put_end(pickling.encode_error(error))

    def close(self) -> None:
        """Close the iterator if it can be closed, as a generator can. Raises what it raises."""
        self.items.has_ended = True
        try:
            if not self.is_async:
                close = getattr(self._iterator, "close", None)
                if close is not None:
                    close()
        finally:
            self._notify_closed()

    def drop(self) -> None:
        """Close an iterator that was never stepped; an async iterator then has nothing to close."""
        with contextlib.suppress(Exception):
            self.close()

    async def close_async(self) -> None:
        """Close an async iterator, as `close` does."""
        self.items.has_ended = True
        try:
            close = getattr(self._iterator, "aclose", None)
            if close is not None:
                await close()
        finally:
            self._notify_closed()

    def _notify_closed(self) -> None:
        on_close = self.on_close
        self.on_close = None
        if on_close is not None:
            on_close(self.items.error)

    def _begin_frame(self) -> int:
        """Renew the deadline for calls that the iterator makes. Return how many items may follow."""
        if self._step_s is not None:
            current_call.set(CallContext(time.monotonic() + self._step_s, self._trace))
        return self.items.begin_frame()
