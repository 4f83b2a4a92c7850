"""The pipeline: one connection of a client, with any number of calls in flight that do not wait.

    submit ──▶ WriteQueue ──▶ server
                  ▲              │
                  └── Reader ◀───┘        a thread, while there is something to wait for
                        │
    PipelinedFuture ◀─completes┘

If a call stands alone, the thread that makes it writes it at once. Calls that follow each other closely stay
in the queue and are written many at a time. They are written by the thread that completes a batch, by a
thread that begins to wait for a result, or by the reader, which is woken for that.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import current_call
from launchpad.courier.client import call_errors
from launchpad.courier.client.call_errors import is_out_of_descriptors
from launchpad.courier.client.future import CANCELLED, PipelinedFuture, next_call_id
from launchpad.courier.client.pending_calls import PendingCalls
from launchpad.courier.client.reader import Reader
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.codec import compression
from launchpad.courier.interruptions import Lock, in_another_thread
from launchpad.courier.protocol import framing, joined
from launchpad.courier.transport.write_queue import WriteQueue

if TYPE_CHECKING:
    from launchpad.courier.client.channel_protocols import CallRoute

BATCH = 128  # frames; the thread that adds the last one writes them all
_CLOSE_S = 0.0001  # calls that follow each other this closely are written together

_current_call = current_call.get
_encode_small = framing.encode_small


class Pipeline:
    """The shared connection of one client. Safe from any thread."""

    new_call: type[PipelinedFuture] = PipelinedFuture
    new_reader: Callable[..., Reader] = Reader

    def __init__(self, peer: ServerInfo) -> None:
        self._peer = peer
        # This lock is held to start and to end a reader. If a thread that adds a call finds a reader, that
        # reader finds the call before it ends. If the thread finds no reader, it starts another.
        self._lock = Lock()
        self._pending = PendingCalls(peer, self._send_cancel)
        self.queue = WriteQueue(join=join)
        self._last_began = 0.0
        #: There is a reader while there are calls, and a little longer.
        self.reader: Reader | None = None
        self.is_inherited = False
        self._is_closed = False

    def submit(
        self, channel: CallRoute, method: bytes, body: bytes, views: Sequence[memoryview]
    ) -> PipelinedFuture:
        counts = channel.counts[method]
        counts.started += 1
        options = channel.options
        headers_out = channel.trace_header
        call = self.new_call(self, next_call_id(), method, options, counts, len(body), channel)
        timeout_us = 0
        if options.timeout_s is not None or _current_call() is not None:
            call.deadline = deadline = options.find_deadline(call.began)
            if deadline is not None:
                timeout_us = max(1, int((deadline - call.began) * 1e6))
        if views or headers_out or call.size > framing.SMALL:
            call.size = framing.size(body, views)
            if options.compress:
                body, views, headers_out = compression.pack_if_worthwhile(body, views, headers_out)
            # The caller may change its arrays as soon as this returns.
            call.frame = framing.encode(
                framing.CALL, call.call_id, method, body, copies(views), timeout_us, headers_out
            )
        else:
            call.frame = _encode_small(framing.CALL, call.call_id, method, body, timeout_us)
        try:
            is_first_due = self._pending.add(call)
            if call.size > self._peer.takes_bytes:
                self._pending.fail_too_large()
                return call
            self._put(call)
            if is_first_due:
                self._wake()
        except BaseException:
            self.withdraw(call)  # interrupted: the caller never got the future
            raise
        return call

    def submit_small(
        self, channel: CallRoute, method: bytes, args: tuple[Any, ...]
    ) -> PipelinedFuture:
        """Make a call without deadline and headers. It may share a frame with other calls."""
        counts = channel.counts[method]
        counts.started += 1
        call = self.new_call(self, next_call_id(), method, channel.options, counts, 0, channel)
        call.frame = args
        pending = self._pending
        try:
            pending.calls[call.call_id] = call
            # Check the limit only after the call is added. The reader does the two in reverse order: it gets
            # the server's limit, and then looks at the calls. So one of them sees a call that is too large.
            if self._peer.takes_bytes < joined.LIMIT:
                pending.fail_too_large()
            self._put(call)
        except BaseException:
            self.withdraw(call)  # interrupted: the caller never got the future
            raise
        return call

    def _put(self, call: PipelinedFuture) -> None:
        """Queue the call. This thread, the reader, or the thread of a later call sends it."""
        queue = self.queue
        pending = self._pending
        reader = self.reader
        queue.put(call)
        gap_s = call.began - self._last_began
        self._last_began = call.began
        if reader is None:
            in_another_thread(self._start, call)
        elif len(queue) >= BATCH or gap_s > _CLOSE_S or len(pending.calls) == 1:
            reader.flush()
        elif reader.must_be_woken:
            reader.wake()

    def resubmit(
        self, call: PipelinedFuture, body: bytes, buffers: Sequence[memoryview], headers: bytes
    ) -> None:
        """Make a call that was tried on another connection and has not run. Never waits."""
        call.owner = self
        call.is_sent = False
        now = time.monotonic()
        timeout_us = 0 if call.deadline is None else max(1, int((call.deadline - now) * 1e6))
        call.frame = framing.encode(
            framing.CALL, call.call_id, call.method, body, buffers, timeout_us, headers
        )
        self._pending.add(call)
        if call.size > self._peer.takes_bytes:
            self._pending.fail_too_large()
            return
        self.queue.put(call)
        if self.reader is None:
            in_another_thread(self._start, call)
        self._wake()

    def flush(self) -> None:
        """Send the calls that wait to be sent. Block while the socket takes no more."""
        reader = self.reader
        if reader is not None and not self.is_inherited:
            reader.flush()

    def withdraw(self, call: PipelinedFuture) -> bool:
        """Cancel a call. Return False if the call already has an outcome."""
        if not self._pending.fail(call, CANCELLED):
            return False
        if call.is_sent:
            self._send_cancel(call.call_id)
        return True

    def close(self) -> None:
        """Close the connection and end the thread. Calls in flight end with an error."""
        with self._lock:
            self._is_closed = True
            reader = self.reader
        if reader is not None:
            reader.close()

    def drop_inherited(self) -> None:
        """End all calls in a forked child. They belong to the parent, like the reader thread."""
        self.is_inherited = True
        self.queue.drop_inherited()
        if self.reader is not None:
            self.reader.wakeup.drop_inherited()
        self._pending.drop_inherited()

    def _wake(self) -> None:
        reader = self.reader
        if reader is not None and reader.must_be_woken:
            reader.wake()

    def _send_cancel(self, call_id: int) -> None:
        self.queue.put(_encode_small(framing.CANCEL, call_id, b"", b""))
        self._wake()  # the reader sends it, because cancelling must not take long

    def _start(self, call: PipelinedFuture) -> None:
        """Start a reader, unless another thread has just done so."""
        try:
            with self._lock:
                if self._is_closed:
                    raise call_errors.closed(self._peer, call.method)
                if self.reader is None:
                    reader = self._new_reader(call.method)
                    try:
                        # The thread may start before `self.reader` is set. But its first step is `_may_end`,
                        # which waits for this lock.
                        reader.thread.start()
                    except RuntimeError:
                        reader.wakeup.close()
                        raise
                    self.reader = reader
        except Exception as error:
            self._pending.fail(call, error)
            raise

    def _new_reader(self, method: bytes) -> Reader:
        try:
            return self.new_reader(self._peer, self._pending, self.queue, self._may_end)
        except OSError as error:
            if is_out_of_descriptors(error):
                raise call_errors.out_of_descriptors(self._peer, method) from error
            raise

    def _may_end(self, reader: Reader) -> bool:
        """Return False if there are calls left for this reader."""
        with self._lock:
            # This must come first: a thread that adds a call afterwards calls `_start`.
            self.reader = None
            if not self._pending.calls:
                return True
            if not self._is_closed:
                self.reader = reader
                return False
        self._pending.fail_all(partial(call_errors.closed, self._peer))
        return True


def join(waiting: Sequence[Any], at: int) -> tuple[bytes, list[PipelinedFuture], int]:
    """Join small calls of one method into a frame, as `write_queue.Join` describes."""
    calls: list[PipelinedFuture] = []
    values: list[object] = []
    first: PipelinedFuture = waiting[at]
    method = first.method
    kind = type(first)
    for call in waiting[at : at + joined.MOST]:
        if type(call) is not kind or call.method != method or type(call.frame) is not tuple:
            break
        at += 1
        # Set the flag before reading the frame. A thread that cancels the call first takes the frame away,
        # and then looks at this flag.
        call.is_sent = True
        args = call.frame
        if type(args) is tuple:
            calls.append(call)
            values.append(args)
    if not calls:
        return b"", calls, at
    if len(calls) == 1:
        (call,) = calls
        body = pickle.dumps((values[0], {}), 5)
        call.size = len(body)
        return _encode_small(framing.CALL, call.call_id, method, body), calls, at
    frame = joined.encode(framing.CALLS, method, [call.call_id for call in calls], values)
    size, remainder = divmod(len(frame) - framing.HEADER.size - len(method), len(calls))
    for call in calls:
        call.size = size
    calls[0].size += remainder
    return frame, calls, at
