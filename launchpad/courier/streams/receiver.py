"""The receiving end of a stream: items that have arrived, and the credit for more.

    other side ──ITEMS … END──▶ receive ──▶ arrived ──take──▶ consumer
               ◀──CREDIT──────────────────────────────┘

Credit is given for what the consumer has taken, not for what has arrived. So the other side is never more
than a window ahead of the consumer, however much the buffers of sockets hold. While items are made and
taken quickly the window is larger, so that the two sides wait for each other less often. Even the larger
window is no more than a consumer takes within some milliseconds. There is no I/O here: `send` puts frames
on their way.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol import framing
from launchpad.courier.streams.items import EncodedItem, decode_shared
from launchpad.courier.telemetry.counters import MethodCounts

WINDOW_ITEMS = 64
QUICK_WINDOW_ITEMS = 1024
WINDOW_BYTES = 8 << 20  # an item is sent while any of the window is left, so one item always fits
_HALF_BYTES = WINDOW_BYTES // 2
_QUICK_S = 25e-6  # an item that is made, sent and taken within this time is quick
_STEADY_AFTER = 4  # half windows in a row that must be quick

_monotonic = time.monotonic

_CREDIT = struct.Struct("<IQ")  # more items and more bytes that the other side may send

ENDED = object()
NOT_HERE = object()

Send = Callable[[Sequence[framing.Chunk]], object]


class StreamReceiver:
    """The items of a stream that have arrived and have not been taken.

    Args:
        number: The number of the stream within its call; 0 is the result.
        send: Sends the chunks of a frame. It never waits, never raises, and calls none of our code.
        counts: The counters that count the items.

    Thread-safe. The other side sends nothing before `open`.
    """

    def __init__(self, number: int, send: Send, counts: MethodCounts) -> None:
        self._number = number
        self._send = send
        self._counts = counts
        # Held for every change except taking an item, which is one atomic operation of the deque.
        self._lock = Lock()
        self._arrived: deque[Any] = deque()
        self._frames: deque[tuple[int, int]] = deque()  # per frame: `n_items` at its end, its bytes
        self._window = CreditWindow()
        self._allowed = 0  # items that we have given credit for, ever
        self._n_credited = 0  # items taken when the window was last measured
        self._taken_bytes = 0  # bytes of whole frames taken since the last credit in bytes
        self._credit_at = 0  # look at the credit when this few items are left
        self._callbacks: list[Callable[[], object]] = []
        self.n_items = 0  # items that have arrived, ever
        self.end: framing.Chunk | None = None  # the body of the END frame, when it has arrived
        self.error: Exception | None = None  # why no more will arrive, if there is no END

    @property
    def is_ready(self) -> bool:
        """True if there is an item, or no more will arrive."""
        return bool(self._arrived) or self.is_over

    @property
    def is_over(self) -> bool:
        """True if nothing more will arrive."""
        return self.end is not None or self.error is not None

    def open(self) -> None:
        """Give the first credit. A second call does nothing."""
        with self._lock:
            if not self._allowed:
                self._window.measured_at = _monotonic()
                self._give(self._window.n_items, WINDOW_BYTES)

    def receive(self, frame: framing.Fields) -> None:
        """Take in an ITEM, ITEMS or END frame. Raise ProtocolError if there was no credit for it.

        After the end this does nothing.
        """
        kind = frame[0]
        body = frame[3]
        buffers = frame[4]
        items: Sequence[Any] = ()
        if kind == framing.ITEMS:
            items = decode_shared(body)
        elif kind == framing.ITEM:
            items = (EncodedItem(body, buffers),)
        with self._lock:
            if self.is_over:
                return  # the frame was on its way when we were closed
            if kind == framing.END:
                self.end = body
            elif self.n_items + len(items) > self._allowed:
                raise ProtocolError("an item of a stream for which there was no credit")
            else:
                self.n_items += len(items)
                size = framing.size(body, buffers) if buffers else len(body)
                self._frames.append((self.n_items, size))
                # This must come before the items can be taken, because `take` looks at `_credit_at` without
                # the lock. If it looked too early, the last item could be taken, and no credit be given.
                self._plan_credit()
                self._arrived.extend(items)
        self._call_back()

    def abort(self, error: Exception) -> None:
        """End the stream: `error` follows the items that have arrived. Only the first reason counts."""
        with self._lock:
            if not self.is_over:
                self.error = error
        self._call_back()

    def close(
        self, last_frame: Sequence[framing.Chunk] = (), error: Exception | None = None
    ) -> None:
        """Drop the items that have arrived and end the stream. Nothing is sent for it after this.

        `last_frame` is sent first, unless the stream had ended already. If the consumer goes on taking items
        and had not reached the end, it gets `error`, if there is one.
        """
        with self._lock:
            is_cut = bool(self._arrived) or not self.is_over
            self._arrived.clear()
            self._frames.clear()
            if error is not None and is_cut:
                self.error = self.error or error
            elif not self.is_over:
                self.end = b""
                if last_frame:
                    self._send(last_frame)
        self._call_back()

    def drop(self) -> None:
        """Drop the items that have arrived, without a lock. The garbage collector calls this."""
        self._arrived.clear()

    def drop_inherited(self, error: Exception) -> None:
        """End the stream in a forked child, in which a thread that doesn't exist may hold the lock."""
        self._lock = Lock()
        self._arrived.clear()
        self._callbacks.clear()
        self.error = error

    def take(self) -> Any:
        """Return the next item, for `decode_item`; NOT_HERE before it arrives, ENDED after the last one."""
        try:
            item = self._arrived.popleft()
        except IndexError:
            # Items and the end may have arrived together just now, so look once more for items.
            return ENDED if self.is_over and not self._arrived else NOT_HERE
        self._counts.items += 1
        if len(self._arrived) <= self._credit_at:
            self._credit()
        return item

    def notify(self, callback: Callable[[], object]) -> None:
        """Call `callback()` once: now if the stream is ready, or else in the thread that makes it ready."""
        with self._lock:
            if not self.is_ready:
                self._callbacks.append(callback)
                return
        callback()

    def _credit(self) -> None:
        """Count the frames that were taken completely, and give credit for them once it is half a window."""
        with self._lock:
            n_taken = self.n_items - len(self._arrived)
            frames = self._frames
            while frames and frames[0][0] <= n_taken:
                _, size = frames.popleft()
                self._taken_bytes += size
                self._counts.bytes_in += size
            n_new = n_taken - self._n_credited
            if n_new >= self._window.n_items // 2 or self._taken_bytes >= _HALF_BYTES:
                self._window.measure(n_new)
                self._n_credited = n_taken
                items = max(0, n_taken + self._window.n_items - self._allowed)
                if items or self._taken_bytes >= _HALF_BYTES:
                    self._give(items, self._taken_bytes)
                    self._taken_bytes = 0
            self._plan_credit()

    # The callers of the next two methods hold the lock.

    def _plan_credit(self) -> None:
        if self._frames:
            n_taken = min(self._frames[0][0], self._n_credited + self._window.n_items // 2)
            self._credit_at = self.n_items - n_taken

    def _give(self, items: int, n_bytes: int) -> None:
        """Give credit, but not after the end: the other side would take it for a frame of the next call."""
        if self.is_over:
            return
        self._allowed += items
        body = _CREDIT.pack(items, n_bytes)
        self._send([framing.encode_small(framing.CREDIT, self._number, b"", body)])

    def _call_back(self) -> None:
        # Callbacks run outside of the lock, because they may take other locks. The thread that removes a
        # callback calls it.
        with self._lock:
            callbacks = self._callbacks
            self._callbacks = []
        for callback in callbacks:
            callback()


class CreditWindow:
    """The most items that the other side may be ahead of the consumer. It is more while both are quick."""

    def __init__(self) -> None:
        self.n_items = WINDOW_ITEMS
        self.measured_at = 0.0
        self._n_quick = 0  # quick half windows in a row

    def measure(self, n_taken: int) -> None:
        """Set the window. Since the last call, the consumer has taken this many items."""
        before = self.measured_at
        self.measured_at = _monotonic()
        is_quick = self.measured_at - before < n_taken * _QUICK_S
        self._n_quick = self._n_quick + 1 if is_quick else 0
        is_steady = self._n_quick >= _STEADY_AFTER
        self.n_items = QUICK_WINDOW_ITEMS if is_steady else WINDOW_ITEMS


def decode_credit(frame: framing.Fields) -> tuple[int, int]:
    """Return how many more items and bytes the other side has room for."""
    try:
        items, n_bytes = _CREDIT.unpack(frame[3])
    except struct.error as error:
        raise ProtocolError("a credit that is not a number") from error
    return items, n_bytes
