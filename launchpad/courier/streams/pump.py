"""What moves a stream's items from a server's iterator to the connection.

           ┌──────────────────────────── credit, room in the socket ───────────────────────┐
           ▼                                                                                │
    idle ──claim──▶ running: step, put, flush ──no credit, socket full──▶ idle ─────────────┘
           └─ cancelled ─▶ close ─▶ done      └──END is written──▶ close ─▶ done

A plain iterator is stepped by whichever thread brings the credit; without credit it takes no thread.
Small items that follow each other quickly are written together. Should the iterator then block with
some of them not written, the pool's leader has them written after `STALL_S`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier.protocol import wire
from launchpad.courier.servers.later import Later
from launchpad.courier.streams.outgoing import Outgoing

_QUICK_S = 0.0001  # an item that took no longer may wait for the next one
_HOLD_S = 0.001
_HOLD_BYTES = 32 << 10
_SLOW_S = 0.01  # after an item that took longer, we look whether the consumer is still there

_monotonic = time.monotonic


class Link(Protocol):
    """What a pump needs of the connection: nothing about sockets."""

    @property
    def is_closed(self) -> bool:
        """Nothing is written any more."""

    def put(self, chunks: Sequence[wire.Chunk]) -> None:
        """Adds a frame to what is to be written."""

    def flush(self, *, may_linger: bool = False) -> bool:
        """Writes. False when the peer takes no more now: `drained` is called when all is written."""

    def hold(self) -> None:
        """What was put shall be written soon, even if the caller does not come back to it."""

    def check_peer(self) -> None:
        """Raises OSError if the consumer is gone."""

    def submit(self, run: Callable[[], None]) -> None:
        """Runs it on another thread."""


class Pump:
    """Steps a plain iterator. `outcome` is done when the stream has ended, one way or the other.

    Cancelling `outcome` closes the iterator: at once if it is not running, else at its next item.
    """

    def __init__(self, outgoing: Outgoing, link: Link) -> None:
        self.outcome: Later = _Outcome(self.cancel)
        self._outgoing = outgoing
        self._link = link
        self._lock = threading.Lock()
        self._is_running = False
        self._is_stuck = False
        self._is_cancelled = False
        self._has_flushed = False

    def allow(self, items: int, n_bytes: int) -> None:
        """The consumer has room for so many more."""
        self._outgoing.allow(items, n_bytes)

    def drained(self) -> None:
        """All that was put has been written."""
        self._is_stuck = False

    def cancel(self) -> None:
        """Nobody wants the rest."""
        if not self.outcome.is_done:
            self._is_cancelled = True
            self._link.submit(self.run)

    def run(self) -> None:
        """Does what can be done now, unless another thread is at it.

        Raises OSError when the consumer is gone; the iterator has been closed then.
        """
        lost = None
        while self._claim():
            try:
                self._work()
            except OSError as error:  # the link's: what the iterator raises is sent
                self._is_cancelled, lost = True, error
            finally:
                self._is_running = False
        if lost is not None:
            raise lost

    @property
    def needs_thread(self) -> bool:
        """There is something to do."""
        return not self._is_running and self._can_work()

    def _claim(self) -> bool:
        with self._lock:
            if self._is_running or not self._can_work():
                return False
            self._is_running = True
            return True

    def _can_work(self) -> bool:
        if self.outcome.is_done:
            return False
        if self._is_cancelled:
            return True
        return not self._is_stuck and (self._outgoing.has_room or self._outgoing.has_ended)

    def _work(self) -> None:
        if not self._is_cancelled and not self._outgoing.has_ended:
            self._outgoing.context.run(self._send_items)
        if self._is_cancelled or (self._outgoing.has_ended and not self._is_stuck):
            self._finish()

    def _send_items(self) -> None:
        outgoing, link = self._outgoing, self._link
        held = 0
        may_hold = self._has_flushed  # not the first item: a short stream needs no watch
        flushed_at = stepped_at = _monotonic()
        while outgoing.has_room and not self._is_cancelled:
            chunks = outgoing.step()
            link.put(chunks)
            now = _monotonic()
            took_s, stepped_at = now - stepped_at, now
            held += len(chunks[0])
            if (
                may_hold
                and took_s < _QUICK_S
                and len(chunks) == 1  # what has buffers is written before they can change
                and held < _HOLD_BYTES
                and now - flushed_at < _HOLD_S
                and outgoing.has_room
            ):
                link.hold()
                continue
            if took_s > _SLOW_S:
                link.check_peer()
            if not self._flush():
                return
            held, flushed_at = 0, now
            may_hold = self._has_flushed = True

    def _flush(self) -> bool:
        self._is_stuck = True  # first, because `drained` may be called before `flush` returns
        if self._link.flush(may_linger=True):
            self._is_stuck = False
        return not self._is_stuck

    def _finish(self) -> None:
        try:
            self._outgoing.context.run(self._outgoing.close)
        except BaseException:
            report()
        self.outcome.set_result(None)


class _Outcome(Later):
    """Done when the stream is; cancelling it is cancelling the stream."""

    __slots__ = ("_cancel",)

    def __init__(self, cancel: Callable[[], None]) -> None:
        super().__init__()
        self._cancel = cancel

    def cancel(self) -> bool:
        if not self.is_done:
            self._cancel()
        return False


def report() -> None:
    """The exception at hand, of somebody's iterator being closed, is nobody's to catch: shows it."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
