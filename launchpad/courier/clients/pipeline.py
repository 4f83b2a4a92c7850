"""Calls that do not wait: any number in flight on one connection of the client.

    submit ──▶ Outbox ──write──▶ server
                  ▲                │
                  └── Reader ◀─────┘      a thread, while there is something to wait for
                        │
    InFlight ◀──settles─┘

A call that stands alone is written by the thread that makes it. Those that follow closely are left in
the outbox, to be written many at a time: by the thread that makes one when there are enough, by one
that begins to wait for a result, or by the reader, which is woken to do it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier.clients.in_flight import InFlight
from launchpad.courier.clients.ledger import Ledger
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.outbox import Notice, Outbox
from launchpad.courier.clients.peer import Peer
from launchpad.courier.clients.reader import Reader
from launchpad.courier.protocol import compression, notes, wire
from launchpad.courier.servers.serving import serving
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import Counts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.streams.stream_calls import Lines

_BATCH = 128  # frames; whoever leaves the last one writes them
_CLOSE_S = 0.0001  # calls that follow each other so closely are written together

_serving = serving.get
_encode_call = codec.encode_call
_encode_small = wire.encode_small


class Pipeline:
    """The shared connection of one client. Safe from any thread."""

    def __init__(self, peer: Peer, counts: Counts) -> None:
        self._peer = peer
        self._counts = counts
        self._lock = threading.Lock()
        self._ledger = Ledger(peer, self._send_cancel)
        self._next_id = itertools.count(1).__next__
        self._outbox = Outbox()
        self._last_began = 0.0
        self._reader: Reader | None = None
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._outbox.is_connected

    @property
    def has_been_left(self) -> bool:
        """The server has moved since the connection was made."""
        reader = self._reader
        address = None if reader is None else reader.address
        return address is not None and self._peer.has_left(address)

    def leave(self) -> None:
        """No more calls are to come. Closes the connection, now or when those in flight have ended."""
        reader = self._reader
        if reader is not None:
            reader.leave()

    def submit(
        self,
        method: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        notes_out: bytes,
        lines: Lines,
    ) -> Future[Any]:
        body, views = _encode_call(args, kwargs)
        if views is None:
            from launchpad.courier.streams.stream_calls import submit_with_streams

            return submit_with_streams(lines, method, args, kwargs, notes_out)
        counts = self._counts[method]
        counts.started += 1
        call = InFlight(self, self._next_id(), method, options, counts, len(body), lines)
        timeout_us = 0
        if options.timeout_s is not None or _serving() is not None:
            timeout_us = _limit(call)
        if views or notes_out or call.size > wire.SMALL:
            _add_large_frame(call, body, views, timeout_us, notes_out)
        else:
            call.frame = _encode_small(wire.CALL, call.call_id, method, body, timeout_us)
        self._send(call)
        return call

    def flush(self) -> None:
        """Sends what waits to be sent. Blocks while the server takes no more."""
        reader = self._reader
        if reader is not None:
            # The reader must never wait for the server to read: the server may be waiting for it.
            self._outbox.flush(wait=not reader.is_current)

    def withdraw(self, call: InFlight) -> bool:
        """Cancels it; False if it has an outcome already."""
        if not self._ledger.take(call):
            return False
        call.fail_as_cancelled()
        if call.is_sent:
            self._send_cancel(call.call_id)
        return True

    def close(self) -> None:
        """Closes the connection and ends the thread. Calls in flight end with an error."""
        with self._lock:
            self._is_closed = True
            reader = self._reader
        if reader is not None:
            reader.close()

    def drop_inherited(self) -> None:
        """For a forked child: the reader thread is the parent's, and so are the calls."""
        self._outbox.drop_inherited()
        if self._reader is not None:
            self._reader.drop_inherited()

    def _send(self, call: InFlight) -> None:
        """Puts it on its way. It leaves soon, whatever becomes of the calls before it."""
        outbox, calls = self._outbox, self._ledger.calls
        is_first_due = self._ledger.enter(call)
        if call.size > outbox.max_bytes:
            self._ledger.fail_too_large(outbox.max_bytes)
            return
        outbox.put(call)
        reader = self._reader
        gap_s, self._last_began = call.began - self._last_began, call.began
        if reader is None:
            self._start(call)
        elif len(outbox) >= _BATCH or gap_s > _CLOSE_S or len(calls) == 1:
            self.flush()
        else:
            self._wake()
        if is_first_due:
            self._wake()

    def _wake(self) -> None:
        reader = self._reader
        if reader is not None and reader.must_be_woken:
            reader.wake()

    def _send_cancel(self, call_id: int) -> None:
        self._outbox.put(Notice(_encode_small(wire.CANCEL, call_id, b"", b"")))
        self._wake()  # the reader sends it: to cancel must not take long

    def _start(self, call: InFlight) -> None:
        """Sees to it that there is a reader."""
        try:
            with self._lock:
                if self._is_closed:
                    raise self._peer.closed(call.method)
                if self._reader is None:
                    reader = Reader(self._peer, self._ledger, self._outbox, self._may_end)
                    reader.start()  # it begins with `_may_end`, and so waits for the lock
                    self._reader = reader
        except Exception as error:
            self._ledger.fail(call, error)
            raise

    def _may_end(self, reader: Reader) -> bool:
        """False if there are calls left for this reader."""
        with self._lock:
            self._reader = None  # first: who enters a call from here on comes to `_start`
            if not self._ledger.calls:
                return True
            if not self._is_closed:
                self._reader = reader
                return False
        self._ledger.fail_all(self._peer.closed)
        return True


def _limit(call: InFlight) -> int:
    """Sets its deadline, if it has one; returns what the server shall know of it."""
    timeout_s, on_behalf_of = call.options.timeout_s, _serving()
    deadline = None if timeout_s is None else call.began + timeout_s
    if on_behalf_of is not None:
        deadline = on_behalf_of.limit(deadline)
    call.deadline = deadline
    return 0 if deadline is None else max(1, int((deadline - call.began) * 1e6))


def _add_large_frame(
    call: InFlight, body: bytes, views: Sequence[memoryview], timeout_us: int, notes_out: bytes
) -> None:
    """For a call that is large, or says more about itself."""
    call.size = wire.size(body, views)
    if call.options.compress and compression.is_worthwhile(body, views):
        body, views, note = compression.pack(body, views)
        notes_out += notes.encode({notes.COMPRESSED: note})
    call.frame = wire.encode(
        wire.CALL, call.call_id, call.method, body, _copy(views), timeout_us, notes_out
    )


def _copy(views: Sequence[memoryview]) -> list[memoryview]:
    """The caller may change its arrays as soon as `submit` returns."""
    return [memoryview(bytearray(view)) for view in views]
