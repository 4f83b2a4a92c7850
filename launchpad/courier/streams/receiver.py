"""The receiving end of a stream: items that have arrived, and the credit for more.

    other side ──ITEMS … END──▶ receive ──▶ arrived ──take──▶ consumer
               ◀──CREDIT──────────────────────────────┘

Credit is given for what the consumer has taken, not for what has arrived. So the other side is
never more than a window ahead of the consumer, whatever the buffers of sockets hold. While items come
and are taken quickly the window is larger, so that both sides wait for each other less often; it stays
what a consumer takes within some milliseconds. No I/O here: `send` puts frames on their way.
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
WINDOW_BYTES = 8 << 20  # an item is sent while any of it is left: one is always possible
_HALF_BYTES = WINDOW_BYTES // 2
_QUICK_S = 25e-6  # an item that is made, sent and taken within this time is quick
_STEADY_AFTER = 4  # halves of a window, all of them quick

_monotonic = time.monotonic

_CREDIT = struct.Struct("<IQ")  # so many more items, and so many more bytes

ENDED, NOT_HERE = object(), object()

Send = Callable[[Sequence[framing.Chunk]], object]


class StreamReceiver:
    """What has arrived of a stream and has not been taken.

    Args:
        number: the stream's, within its call; 0 is the result.
        send: takes the chunks of a frame; never waits, never raises, and calls nothing of ours.
        counts: where the items are counted.

    Safe from any thread. Nothing is sent to us before `open`.
    """

    def __init__(self, number: int, send: Send, counts: MethodCounts) -> None:
        self._number = number
        self._send = send
        self._counts = counts
        self._lock = Lock()
        self._arrived: deque[Any] = deque()
        self._frames: deque[tuple[int, int]] = deque()  # `n_items` at its end, and bytes of each
        self._window = CreditWindow()
        self._allowed = 0  # items, ever
        self._n_credited = 0  # items that were taken, when half a window was the last time
        self._taken_bytes = 0  # since then, of whole frames
        self._credit_at = 0  # when so few are left there is something to do
        self._callbacks: list[Callable[[], object]] = []
        self.n_items = 0  # that have arrived, ever
        self.end: framing.Chunk | None = None  # the last frame's body, when it has come
        self.error: Exception | None = None  # why there will be no more, without an END

    @property
    def is_ready(self) -> bool:
        """There is an item, or there will be no more."""
        return bool(self._arrived) or self.is_over

    @property
    def is_over(self) -> bool:
        """Nothing more will arrive."""
        return self.end is not None or self.error is not None

    def open(self) -> None:
        """Gives the first credit; nothing happens the second time."""
        with self._lock:
            if not self._allowed:
                self._window.measured_at = _monotonic()
                self._give(self._window.n_items, WINDOW_BYTES)

    def receive(self, frame: framing.Fields) -> None:
        """Takes an ITEM, ITEMS or END of the other side in; ProtocolError if there was no credit for it.

        Nothing happens after the end.
        """
        kind, body, buffers = frame[0], frame[3], frame[4]
        items: Sequence[Any] = ()
        if kind == framing.ITEMS:
            items = decode_shared(body)
        elif kind == framing.ITEM:
            items = (EncodedItem(body, buffers),)
        with self._lock:
            if self.is_over:
                return  # it was on its way when we were closed
            if kind == framing.END:
                self.end = body
            elif self.n_items + len(items) > self._allowed:
                raise ProtocolError("an item of a stream for which there was no credit")
            else:
                self.n_items += len(items)
                size = framing.size(body, buffers) if buffers else len(body)
                self._frames.append((self.n_items, size))
                self._plan_credit()
                self._arrived.extend(items)
        self._call_back()

    def abort(self, error: Exception) -> None:
        """There will be no more: `error` follows what has arrived. The first reason stays."""
        with self._lock:
            if not self.is_over:
                self.error = error
        self._call_back()

    def close(
        self, last_frame: Sequence[framing.Chunk] = (), error: Exception | None = None
    ) -> None:
        """Drops what has arrived, and ends it: no more is taken. Nothing of it is sent from here on.

        `last_frame` is sent first, unless it had ended already. A consumer that goes on to take items, and
        had not come to the end, meets `error`, if there is one.
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
        """Forgets what has arrived. Takes no lock: for when no other thread is left."""
        self._arrived.clear()

    def drop_inherited(self, error: Exception) -> None:
        """For a forked child, in which the lock may be held for ever: there will be no more."""
        self._lock = Lock()
        self._arrived.clear()
        self._callbacks.clear()
        self.error = error

    def take(self) -> Any:
        """The next item, as `decode_item` takes it; NOT_HERE if it is still to come, ENDED if none will."""
        try:
            item = self._arrived.popleft()
        except IndexError:
            return ENDED if self.is_over and not self._arrived else NOT_HERE
        self._counts.items += 1
        if len(self._arrived) <= self._credit_at:
            self._credit()
        return item

    def notify(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` once: when it is ready, in the thread that makes it so; now, if it is."""
        with self._lock:
            if not self.is_ready:
                self._callbacks.append(callback)
                return
        callback()

    def _credit(self) -> None:
        """Counts the frames of which all has been taken, and gives credit when it is half a window."""
        with self._lock:
            n_taken, frames = self.n_items - len(self._arrived), self._frames
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

    # The rest is called with the lock held.

    def _plan_credit(self) -> None:
        if self._frames:
            n_taken = min(self._frames[0][0], self._n_credited + self._window.n_items // 2)
            self._credit_at = self.n_items - n_taken

    def _give(self, items: int, n_bytes: int) -> None:
        """Credit that followed the end would be taken for a frame of the next call."""
        if self.is_over:
            return
        self._allowed += items
        body = _CREDIT.pack(items, n_bytes)
        self._send([framing.encode_small(framing.CREDIT, self._number, b"", body)])

    def _call_back(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class CreditWindow:
    """The number of items that the other side may be ahead of the consumer; larger while both are quick."""

    def __init__(self) -> None:
        self.n_items = WINDOW_ITEMS
        self.measured_at = 0.0
        self._n_quick = 0  # halves in a row

    def measure(self, n_taken: int) -> None:
        """Find the window, when so many more items have been taken since the last time."""
        before = self.measured_at
        self.measured_at = _monotonic()
        is_quick = self.measured_at - before < n_taken * _QUICK_S
        self._n_quick = self._n_quick + 1 if is_quick else 0
        is_steady = self._n_quick >= _STEADY_AFTER
        self.n_items = QUICK_WINDOW_ITEMS if is_steady else WINDOW_ITEMS


def decode_credit(frame: framing.Fields) -> tuple[int, int]:
    """Items and bytes that the other side has room for, in addition to those it had before."""
    try:
        items, n_bytes = _CREDIT.unpack(frame[3])
    except struct.error as error:
        raise ProtocolError("a credit that is none") from error
    return items, n_bytes
