"""The sending end of a stream: what an iterator gives, as frames, while the other side has room.

    iterator ──pull──▶ items that wait ──put_waiting──▶ ITEM ITEMS … END
                ▲
              allow ◀── CREDIT of the other side (receiver.py)

No I/O and no threads here: the caller pulls, and what it gives as `put` puts the frames on their way.

Whether the next item comes quickly is only known when it is there. So it is guessed from those before: a
slow one, and those that follow it, go at once, each in a frame of its own. Where some have come quickly in
a row the next share frames. Should the iterator block then, another thread puts what waits.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.codec import pickling
from launchpad.courier.errors import MessageTooLarge
from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol import framing
from launchpad.courier.streams.items import (
    FRAME_BYTES,
    LARGEST_INT,
    LARGEST_SIZED,
    SHARED_BYTES,
    SHARED_ITEMS,
    SIZED,
    UNSIZED,
    WEIGHT_BYTES,
    encode_shared,
)
from launchpad.courier.telemetry.counters import MethodCounts

_QUICK_S = 25e-6  # an item that took longer goes at once
_STEADY_AFTER = 8  # quick ones in a row; the next may wait for each other
_HOLD_S = 1e-3  # but not longer

_dumps, _monotonic = pickle.dumps, time.monotonic


class StreamSender:
    """An iterator, sync or async, on its way to the other side.

    Its steps are to run in `context`, the one that it was made in.

    Args:
        iterator: has `__next__`, or else `__anext__`.
        number: the stream's, within its call; 0 is the result.
        call_context: the call whose result it is. What the iterator calls has as much time for
            each item as that call had: so long its consumer waits for one.

    One thread at a time may pull or close it; any may `allow` and `put_waiting`.
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
        self.put: Callable[[Sequence[framing.Chunk]], object] = id  # takes a frame's chunks
        self.is_cancelled = False  # no further item is wanted
        self._lock = Lock()
        self._waiting: list[Any] = []  # items without a frame, as they stand in one
        # The other side takes more at once than any frame of several items has.
        self._may_share = False
        self._n_quick = 0  # items in a row
        self._yield_at = 0.0  # when the event loop is to run its other tasks
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
            self._allowed_items > self._sent_items + len(self._waiting)
            and self._allowed_bytes > self._sent_bytes
            and not self.has_ended
        )

    @property
    def has_waiting(self) -> bool:
        """Items were taken from the iterator, and have no frame yet."""
        return bool(self._waiting)

    def allow(self, items: int, n_bytes: int) -> None:
        """The other side has room for so many more."""
        self._allowed_items += items
        self._allowed_bytes += n_bytes

    def pull(self, hold: Callable[[], bool]) -> None:
        """Takes the next item; when the last ones came quickly, more of them as long as they do.

        They wait for `put_waiting`, which has to follow. `hold()` is asked before any of them waits for
        the iterator, and is true if another thread calls `put_waiting` soon should that block.
        """
        most, room = self._begin_frame(), SHARED_ITEMS
        step, add = self._iterator.__next__, self._add
        is_steady = self._n_quick >= _STEADY_AFTER and self._may_share and hold()
        now = _monotonic()
        until = now + _HOLD_S
        for _ in range(most):
            try:
                item = step()
            except StopIteration:
                return self._put_end(b"")
            except BaseException as error:  # SystemExit too: a consumer must not end its server
                return self._put_end(pickling.encode_error(error))
            room -= add(item)
            before, now = now, _monotonic()
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
        """`pull`, for an async iterator.

        When an item begins to wait, `put_soon()` is called, which has the event loop call `put_waiting` as
        soon as it runs anything else. So no item waits for one for which the iterator itself waits. The
        loop does so every millisecond, even if the iterator waits for nothing.
        """
        import asyncio

        most, room = self._begin_frame(), SHARED_ITEMS
        step, add = self._iterator.__anext__, self._add
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
                return self._put_end(b"")
            # A CancelledError goes on: it is ours.
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                return self._put_end(pickling.encode_error(error))
            before, now = now, _monotonic()
            is_last = now - before >= _QUICK_S or now >= until or self.is_cancelled
            if not is_last and not self._waiting:
                put_soon()
            room -= add(item)
            if is_last or room <= 0:
                return None
        return None

    def put_waiting(self) -> None:
        """Puts the items that wait; several share a frame. From any thread."""
        if self._waiting:
            with self._lock:
                self._put_waiting()

    def fail(self, error: BaseException) -> None:
        """Ends the stream with this error, of what steps the iterator; unless it has ended."""
        if not self.has_ended:
            self._put_end(pickling.encode_error(error))

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

    def _add(self, item: Any) -> int:
        """Has an item wait, or puts a large one; returns how many of the smallest it counts for."""
        kind = type(item)
        if self._may_share:
            if kind in SIZED:
                if (size := len(item)) < LARGEST_SIZED:
                    self._waiting.append(item)
                    return 1 + size // WEIGHT_BYTES
            elif kind in UNSIZED and (kind is not int or -LARGEST_INT < item < LARGEST_INT):
                self._waiting.append(item)
                return 1
        try:
            body, views = pickling.encode(item)
        except BaseException as error:
            self._put_end(pickling.encode_unpicklable(item, error, "had in its stream"))
            return SHARED_ITEMS
        size = framing.size(body, views) if views else len(body)
        if size > self.takes_bytes:
            too_large = MessageTooLarge(
                f"an item of the stream is {size} bytes, and the other side takes {self.takes_bytes} at "
                "once. Make smaller items, or give the other side a larger max_bytes."
            )
            self._put_end(pickling.encode_error(too_large, is_ours=True))
        elif not views and size < SHARED_BYTES:
            self._waiting.append(bytearray(body))
            return 1 + size // WEIGHT_BYTES
        else:
            with self._lock:
                self._put_waiting()
                self._put_item(body, views)
        return SHARED_ITEMS

    def _put_end(self, body: bytes) -> None:
        if self.on_end is not None:
            self.on_end()
        with self._lock:
            self._put_waiting()
            self.has_ended = self.has_reported_end = True
            self._error = body
            if body and self.counts is not None:
                self.counts.errors += 1
            self.put(framing.encode(framing.END, self.number, b"", body))

    # With the lock held, since frames have to be put in the order of their items.

    def _put_waiting(self) -> None:
        most = SHARED_ITEMS if self._may_share else 1
        while items := self._waiting[:most]:
            del self._waiting[: len(items)]
            if len(items) > 1:
                body = encode_shared(items)
                self._count(len(items), len(body))
                self.put((framing.encode_small(framing.ITEMS, self.number, b"", body),))
            else:
                (item,) = items
                self._put_item(bytes(item) if type(item) is bytearray else _dumps(item, 5))

    def _put_item(self, body: bytes, views: Sequence[memoryview] = ()) -> None:
        self._count(1, framing.size(body, views) if views else len(body))
        if views or len(body) > framing.SMALL:
            self.put(framing.encode(framing.ITEM, self.number, b"", body, views))
        else:
            self.put((framing.encode_small(framing.ITEM, self.number, b"", body),))

    def _count(self, items: int, n_bytes: int) -> None:
        self._sent_items += items
        self._sent_bytes += n_bytes
        if self.counts is not None:
            self.counts.items += items
            self.counts.bytes_out += n_bytes

    def _notify_closed(self) -> None:
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self._error)

    def _begin_frame(self) -> int:
        """Renews the deadline of what the iterator calls; returns how many items may follow."""
        if self._step_s is not None:
            current_call.set(CallContext(time.monotonic() + self._step_s, self._trace))
        self._may_share = self.takes_bytes >= FRAME_BYTES
        return self._allowed_items - self._sent_items - len(self._waiting)


def show_close_error() -> None:
    """Shows the exception at hand, which closing a user's iterator raised and no caller can be given."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
