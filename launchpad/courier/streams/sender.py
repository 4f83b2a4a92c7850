"""The sending end of a stream: what an iterator gives, as frames, while the other side has room.

    iterator ──step──▶ ITEM ITEM … END
                ▲
              allow ◀── CREDIT of the other side (receiver.py)

No I/O and no threads here: the caller steps it, and puts the frames on their way.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.codec import pickling
from launchpad.courier.errors import MessageTooLarge
from launchpad.courier.protocol import framing
from launchpad.courier.telemetry.counters import MethodCounts


class StreamSender:
    """An iterator, sync or async, on its way to the other side.

    Its steps are to run in `context`, the one that it was made in.

    Args:
        iterator: has `__next__`, or else `__anext__`.
        number: the stream's, within its call; 0 is the result.
        call_context: the call whose result it is. What the iterator calls has as much time for
            each item as that call had: so long its consumer waits for one.

    One thread at a time may step or close it; any may `allow`.
    """

    def __init__(
        self, iterator: Any, number: int = 0, call_context: CallContext | None = None
    ) -> None:
        self.number = number
        self.is_async = not hasattr(type(iterator), "__next__")
        self.has_ended = False
        self.has_reported_end = False  # the END has been made
        self.context = copy_context()
        self.takes_bytes = framing.MAX_BYTES
        self.counts: MethodCounts | None = None  # where its items are counted
        self.on_end: Callable[[], object] | None = None  # called before an END is made
        self.on_close: Callable[[bytes], object] | None = None  # told of the error it ended with
        self._iterator = iterator
        self._trace = b"" if call_context is None else call_context.trace
        deadline = None if call_context is None else call_context.deadline
        self._step_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        self._error = b""
        # Two counters each, so that the thread that allows and the one that sends never write the same one.
        self._allowed_items = self._allowed_bytes = 0
        self._sent_items = self._sent_bytes = 0

    @property
    def has_credit(self) -> bool:
        """The other side takes one more."""
        return (
            self._allowed_items > self._sent_items
            and self._allowed_bytes > self._sent_bytes
            and not self.has_ended
        )

    def allow(self, items: int, n_bytes: int) -> None:
        """The other side has room for so many more."""
        self._allowed_items += items
        self._allowed_bytes += n_bytes

    def step(self) -> Sequence[framing.Chunk]:
        """The next frame: an item, or the end, and why."""
        if self._step_s is not None:
            self._renew_deadline(self._step_s)
        try:
            item = next(self._iterator)
        except StopIteration:
            return self._end(b"")
        except BaseException as error:  # SystemExit too: a consumer must not end its server
            return self._end(pickling.encode_error(error))
        return self._encode(item)

    async def step_async(self) -> Sequence[framing.Chunk]:
        """`step`, for an async iterator."""
        if self._step_s is not None:
            self._renew_deadline(self._step_s)
        try:
            item = await self._iterator.__anext__()
        except StopAsyncIteration:
            return self._end(b"")
        # A CancelledError goes on: it is ours.
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return self._end(pickling.encode_error(error))
        return self._encode(item)

    def interrupt(self) -> None:
        """Ends a step that waits, where that can be done from outside. From any thread."""
        if (interrupt := getattr(self._iterator, "courier_interrupt", None)) is not None:
            interrupt()

    def close(self) -> None:
        """Closes the iterator if it can be closed, as a generator can. Raises what it raises."""
        self.has_ended = True
        try:
            if not self.is_async and (close := getattr(self._iterator, "close", None)) is not None:
                close()
        finally:
            self._notify_closed()

    def drop(self) -> None:
        """`close`, for one that was never stepped. An async iterator has nothing to close then."""
        with contextlib.suppress(Exception):
            self.close()

    async def close_async(self) -> None:
        """`close`, for an async iterator."""
        self.has_ended = True
        try:
            if (close := getattr(self._iterator, "aclose", None)) is not None:
                await close()
        finally:
            self._notify_closed()

    def _encode(self, item: object) -> Sequence[framing.Chunk]:
        try:
            body, views = pickling.encode(item)
        except BaseException as error:
            return self._end(pickling.encode_unpicklable(item, error, "had in its stream"))
        size = framing.size(body, views) if views else len(body)
        if size > self.takes_bytes:
            too_large = MessageTooLarge(
                f"an item of the stream is {size} bytes, and the other side takes {self.takes_bytes} at "
                "once. Make smaller items, or give the other side a larger max_bytes."
            )
            return self._end(pickling.encode_error(too_large, is_ours=True))
        self._sent_items += 1
        self._sent_bytes += size
        if self.counts is not None:
            self.counts.items += 1
            self.counts.bytes_out += size
        if views or size > framing.SMALL:
            return framing.encode(framing.ITEM, self.number, b"", body, views)
        return (framing.encode_small(framing.ITEM, self.number, b"", body),)

    def _end(self, body: bytes) -> Sequence[framing.Chunk]:
        if self.on_end is not None:
            self.on_end()
        self.has_ended = self.has_reported_end = True
        self._error = body
        if body and self.counts is not None:
            self.counts.errors += 1
        return framing.encode(framing.END, self.number, b"", body)

    def _notify_closed(self) -> None:
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self._error)

    def _renew_deadline(self, step_s: float) -> None:
        current_call.set(CallContext(time.monotonic() + step_s, self._trace))


def show_close_error() -> None:
    """Shows the exception at hand, which closing a user's iterator raised and no caller can be given."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
