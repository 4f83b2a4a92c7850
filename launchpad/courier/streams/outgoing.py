"""Items of a stream that are sent in frames, as far as the other side has given credit.

    add ──▶ items that wait ──put_waiting──▶ ITEM ITEMS … END
     ▲
   allow ◀── CREDIT of the other side (receiver.py)

There is no I/O here: the function `put` puts the frames on their way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

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

_dumps = pickle.dumps


class OutgoingItems:
    """The items of one stream that were taken from its iterator and are not in frames yet.

    One thread at a time may add items or the end; any thread may call `allow` and `put_waiting`.

    Args:
        number: The number of the stream within its call; 0 is the result.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.takes_bytes = framing.MAX_BYTES
        self.counts: MethodCounts | None = None  # where the items are counted
        self.put: Callable[[Sequence[framing.Chunk]], object] = id  # takes a frame's chunks
        self.on_end: Callable[[], object] | None = None  # called before an END is made
        self.has_ended = False
        self.has_reported_end = False  # the END has been made
        self.error = b""  # the error that it ended with, if any
        # Held to put frames, which must be put in the order of their items.
        self._lock = Lock()
        self.waiting: list[Any] = []  # items without a frame yet, encoded as in a frame
        # True if the other side takes more at once than any frame of several items has.
        self.may_share = False
        # There are two counters for items and two for bytes. The thread that gives credit and the thread that
        # sends never write to the same counter, so they need no lock.
        self._allowed_items = 0
        self._allowed_bytes = 0
        self._sent_items = 0
        self._sent_bytes = 0

    @property
    def has_credit(self) -> bool:
        """True if the other side takes another item."""
        return (
            self._allowed_items > self._sent_items + len(self.waiting)
            and self._allowed_bytes > self._sent_bytes
            and not self.has_ended
        )

    def allow(self, items: int, n_bytes: int) -> None:
        """Note that the other side has room for this many more items and bytes."""
        self._allowed_items += items
        self._allowed_bytes += n_bytes

    def begin_frame(self) -> int:
        """Prepare for the next items. Return how many may follow."""
        self.may_share = self.takes_bytes >= FRAME_BYTES
        return self._allowed_items - self._sent_items - len(self.waiting)

    def put_waiting(self) -> None:
        """Put the items that wait, several in one frame. Any thread may call this."""
        if self.waiting:
            with self._lock:
                self._put_waiting()

    def add(self, item: Any) -> int:
        """Let an item wait, or put it if it is large. Return its weight: 1 for the smallest items."""
        kind = type(item)
        if self.may_share:
            if kind in SIZED:
                size = len(item)
                if size < LARGEST_SIZED:
                    self.waiting.append(item)
                    return 1 + size // WEIGHT_BYTES
            elif kind in UNSIZED and (kind is not int or -LARGEST_INT < item < LARGEST_INT):
                self.waiting.append(item)
                return 1
        try:
            body, views = pickling.encode(item)
        except BaseException as error:
            self.put_end(pickling.encode_unpicklable(item, error, "had in its stream"))
            return SHARED_ITEMS
        size = framing.size(body, views) if views else len(body)
        if size > self.takes_bytes:
            too_large = MessageTooLarge(
                f"an item of the stream is {size} bytes, and the other side takes {self.takes_bytes} at "
                "once. Make smaller items, or give the other side a larger max_bytes."
            )
            self.put_end(pickling.encode_error(too_large, is_ours=True))
        elif not views and size < SHARED_BYTES:
            self.waiting.append(bytearray(body))
            return 1 + size // WEIGHT_BYTES
        else:
            with self._lock:
                self._put_waiting()
                self._put_item(body, views)
        return SHARED_ITEMS

    def put_end(self, body: bytes) -> None:
        """Put what waits, and an END with this body: empty, or the exception that ended the stream."""
        if self.on_end is not None:
            self.on_end()
        with self._lock:
            self._put_waiting()
            self.has_ended = True
            self.has_reported_end = True
            self.error = body
            if body and self.counts is not None:
                self.counts.errors += 1
            self.put(framing.encode(framing.END, self.number, b"", body))

    # The callers of these methods hold the lock.

    def _put_waiting(self) -> None:
        most = SHARED_ITEMS if self.may_share else 1
        while self.waiting:
            items = self.waiting[:most]
            del self.waiting[: len(items)]
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
