"""Calls that do not wait and have large arrays. Each has a connection of its own, which shares memory.

    submit ── arrays into a segment, a short frame to an idle connection ──▶ server
                                                                               │
    ShmFuture ◀── reads ── the thread that waits for its result  ◀─────────────┤
              ◀── reads ── AnswerPoller, one thread for all others ◀───────────┘

Such a call is a blocking call in two halves. The thread that makes the call writes, and the thread that waits
for the result reads. So no thread has to wake another. If a call finds no idle connection, a new thread
opens one. Like small calls, some calls go through the pipeline's socket: calls for which a step fails, calls
beyond `MAX_CALLS` at once, and calls that don't fit into a segment.

1. The thread that takes a call out of `_pending` decides its outcome, or gives the call to the pipeline.
2. Only the thread that holds a call's `claim` may read from the call's connection, have the connection
   watched, or close it. A thread that cancels the call, or finds that its deadline has passed, may decide the
   outcome without the claim. That thread then shuts the connection down, which wakes a thread that reads.
   Once a call has given its connection away, its claim is never released.
3. The method owns the arrays that it gets, and may write to them. So a call that may have run is only sent
   again with copies of its arrays. The copies are made for calls that may run twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launchpad.courier import fork
from launchpad.courier.buffers import copies
from launchpad.courier.client import call_errors
from launchpad.courier.client.answer_poller import AnswerPoller
from launchpad.courier.client.call import NotRun, decode_reply, may_repeat, release_connection
from launchpad.courier.client.connection import CHECK_EVERY_S
from launchpad.courier.client.future import CANCELLED, PipelinedFuture, next_call_id
from launchpad.courier.client.pending_calls import PendingCalls
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.client.shm_connection import ShmClientConnection, ShmRequest
from launchpad.courier.errors import NotSent
from launchpad.courier.interruptions import Lock, in_another_thread, is_interruption
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.protocol import framing
from launchpad.courier.shm import segments
from launchpad.courier.shm.sender import SharedBuffers, pool

if TYPE_CHECKING:
    from launchpad.courier.client.channel_protocols import CallRoute

MAX_CALLS = 16  # calls that may be in flight at once, each on a connection of its own
# How many bytes and buffers of a call may go through the socket, which must take them at once.
_MAX_BYTES = 64 << 10
_MAX_SMALL = 1000

# From this many bytes on, copying into memory that is not in the caches takes much longer.
_COLD = 2 << 20
_LOOKS_AT = 2  # a call that begins checks this many earlier calls for an answer

_TRY = (False,)  # the argument of `acquire`

_monotonic = time.monotonic


class ShmCalls:
    """The calls of one client that share memory and do not wait. Safe from any thread."""

    def __init__(self, peer: ServerInfo) -> None:
        self._peer = peer
        self._pending = PendingCalls(peer, lambda call_id: None)
        # This lock is held to start and to end the poller, and to close. So the poller doesn't end while a
        # call is pending, and after `close` no call starts a poller or makes a pipeline.
        self._lock = fork.free_in_child(Lock())
        # This lock is held to close a connection, or to shut down one that another thread reads from.
        self._closing = fork.free_in_child(Lock())
        # There is a poller while there are calls, and a little longer.
        self._poller: AnswerPoller[ShmFuture] | None = None
        self.is_inherited = False
        self._is_closed = False

    def try_submit(
        self, channel: CallRoute, method: bytes, body: bytes, views: Sequence[memoryview]
    ) -> ShmFuture | None:
        """Make a call. If the call must go through the pipeline, do nothing and return None."""
        peer = self._peer
        small = [view for view in views if view.nbytes < segments.LARGE]
        has_large = len(small) < len(views)
        size = framing.size(body, views)
        if (
            not peer.shares_memory
            or channel.options.compress
            or len(self._pending.calls) >= MAX_CALLS
            or size > peer.takes_bytes
            or framing.size(body, small) > _MAX_BYTES
            or len(small) > _MAX_SMALL
            or len(views) > segments.MAX_BUFFERS
        ):
            return None
        if size >= _COLD:
            pool.recall()
        shared = SharedBuffers.store(views) if has_large else None
        if has_large and shared is None:
            return None
        # Read answers to earlier calls that came while this thread copied. Then this call can use their
        # connections and memory, which are still in the caches.
        for earlier in list(self._pending.calls.values())[:_LOOKS_AT]:
            earlier.done()
        # The caller may change its arrays as soon as this returns.
        small = copies(small)
        if shared is not None:
            shared = shared._replace(small=small)
        may_run_again = has_large and may_repeat(peer, method, channel.options)
        spare = copies(views) if may_run_again else None
        request = ShmRequest(body, shared, small, channel.trace_header, spare)
        call = ShmFuture(self, channel, method, size, request)
        # No thread may read, or close the connection, before the call is sent.
        call.claim.acquire()
        is_first_due = self._pending.add(call)
        try:
            if not self._ensure_poller(is_first_due):
                self._pending.calls.pop(call.call_id, None)
                return None
            if shared is not None:
                shared.lease.look = call.done
            call.counts.started += 1
            self._send(call, channel)
        except BaseException as error:
            if is_interruption(error):
                self.withdraw(call)  # its future never reached the caller
            raise
        return call

    def _send(self, call: ShmFuture, channel: CallRoute) -> None:
        connection = channel.connections.take_shm()
        if connection is not None:
            self._begin(call, channel, connection)
            return
        name = f"courier-connect-{self._peer.label}"
        thread = OwnThread(target=self._open, args=(call, channel), name=name)
        try:
            in_another_thread(thread.start)
        except RuntimeError:  # out of threads
            self._resubmit(call)

    def withdraw(self, call: ShmFuture) -> bool:
        """Cancel a call. Return False if the call already has an outcome."""
        return self._pending.fail(call, CANCELLED)

    def flush(self) -> None:
        """Do nothing: no call waits here to be sent."""

    def read_for(self, call: ShmFuture, timeout: float | None) -> None:
        """Read the answer in the thread that waits for it, unless another thread already reads it.

        Returns when the call is completed or has gone to the pipeline, or when the time has passed.
        """
        connection = self._claim(call)
        if connection is not None:
            try:
                self._read_for(call, connection, timeout)
            except BaseException as error:
                self._end_if_interrupted(call, connection, error)
                raise

    def read_now(self, call: ShmFuture, _: object = None) -> None:
        """Read what has arrived, unless another thread reads."""
        connection = self._claim(call)
        if connection is not None:
            try:
                self._read_now(call, connection)
            except BaseException as error:
                self._end_if_interrupted(call, connection, error)
                raise

    def watch(self, call: ShmFuture) -> bool:
        """Let the poller read the answer. Return False if another thread has the claim."""
        connection = self._claim(call)
        if connection is None:
            return False
        try:
            self._watch(call, connection)
            self._unclaim(call, connection)
        except BaseException as error:
            self._end_if_interrupted(call, connection, error)
            raise
        return True

    def drop_connection(self, call: ShmFuture) -> None:
        """End the connection of a call that got no answer on it. Then the server need not begin the call."""
        with self._closing:
            connection = call.connection
            call.connection = None
            if connection is None:
                return
            connection.cancel(call.call_id)
            # If another thread has the claim, that thread is reading, and finds the connection's end.
            has_claim = call.claim.acquire(blocking=False)
        if has_claim:
            self._close(connection)

    def close(self) -> None:
        """End all connections and the thread. Calls in flight end with an error."""
        with self._lock:
            self._is_closed = True
            poller = self._poller
            self._poller = None
        for call in list(self._pending.calls.values()):
            with self._closing:  # after this no call is sent any more
                make_error = call_errors.lost if call.is_sent else call_errors.closed
            self._pending.fail(call, make_error(self._peer, call.method))
        if poller is not None:
            poller.close()

    def drop_inherited(self) -> None:
        """End all calls in a forked child. They belong to the parent."""
        self.is_inherited = True
        for call in list(self._pending.calls.values()):
            if isinstance(call, ShmFuture) and call.connection is not None:
                call.connection.close()
                call.connection = None
        if self._poller is not None:
            self._poller.drop_inherited()
        self._pending.drop_inherited()

    # The thread that runs the following methods has the claim.

    def _end_if_interrupted(
        self, call: ShmFuture, connection: ShmClientConnection, error: BaseException
    ) -> None:
        """End the call of an interrupted thread, which may have read a part of its answer."""
        if not is_interruption(error):
            return
        if call.connection is connection:  # the call has not given its connection away
            call.connection = None
            self._close(connection)
        self._pending.calls.pop(call.call_id, None)
        if call.owner is self and not call.is_completed:
            # The exception is meant for the interrupted thread. It is not the outcome of this call.
            call.fail(call_errors.lost(self._peer, call.method, connection.address))

    def _read_for(
        self, call: ShmFuture, connection: ShmClientConnection, timeout: float | None
    ) -> None:
        call.is_read = True
        self._unwatch(connection)
        until = None if timeout is None else _monotonic() + timeout
        frame = None
        try:
            while frame is None:
                remaining_s = CHECK_EVERY_S if until is None else until - _monotonic()
                if remaining_s <= 0:
                    break
                connection.limit(min(remaining_s, CHECK_EVERY_S))
                with contextlib.suppress(BlockingIOError):
                    frame = connection.receive()
            connection.limit(CHECK_EVERY_S)
        except OSError as error:
            if is_interruption(error):
                raise
            self._lose(call, connection)
            return
        if frame is not None:
            self._settle(call, connection, frame)
        else:
            self._watch(call, connection)
            call.is_read = False
            self._unclaim(call, connection)

    def _read_now(self, call: ShmFuture, connection: ShmClientConnection) -> None:
        try:
            frame = connection.try_receive()
        except Exception as error:
            if is_interruption(error):
                raise
            self._lose(call, connection)
            return
        if frame is None:
            self._unclaim(call, connection)
        else:
            self._settle(call, connection, frame)

    def _open(self, call: ShmFuture, channel: CallRoute) -> None:
        """Open a connection, and make the call on it. Runs in a thread of its own."""
        try:
            remaining_s = None if call.deadline is None else max(1e-3, call.deadline - _monotonic())
            connection = channel.try_to_open_shm(remaining_s)
        except NotSent:  # out of descriptors, but the pipeline may already have its connection
            connection = None
        except Exception as error:
            self._pending.fail(call, error)
            return
        if connection is None:  # the pipeline waits for the server
            self._resubmit(call)
        else:
            self._begin(call, channel, connection)

    def _begin(self, call: ShmFuture, channel: CallRoute, connection: ShmClientConnection) -> None:
        request = call.request
        timeout_us = 0
        if call.deadline is not None:
            timeout_us = max(1, int((call.deadline - _monotonic()) * 1e6))
        # Set `is_sent` with the lock held: `close` looks at it to find out if the call may have run.
        with self._closing:
            is_closed = self._is_closed
            call.is_sent = not is_closed
        if is_closed:
            connection.close()
            self._pending.fail(call, call_errors.closed(self._peer, call.method))
            return
        if request is None:  # the call was cancelled, or is late
            release_connection(channel, connection)
            return
        is_refused = connection.is_refused and request.shared is not None
        # The handshake of this connection may have shown a smaller limit.
        if is_refused or call.size > self._peer.takes_bytes:
            release_connection(channel, connection)
            self._resubmit(call)
            return
        try:
            connection.begin(call.call_id, call.method, request, timeout_us)
        except BaseException as error:
            connection.close()
            if is_interruption(error):
                self._pending.fail(call, CANCELLED)  # its future never reached the caller
                raise
            if isinstance(error, OSError):
                self._resubmit(call)
            else:
                self._pending.fail(call, error)
            return
        with self._closing:
            if not call.is_completed:
                if call.is_watched:
                    self._watch(call, connection)
                # The lock is held, so that a tick finds both the connection and the free claim, or neither.
                call.connection = connection
                call.claim.release()
                return
            # The call was completed while this thread sent it. It had no connection yet that could be ended.
            connection.cancel(call.call_id)
        self._close(connection)

    def _settle(
        self, call: ShmFuture, connection: ShmClientConnection, frame: framing.Fields
    ) -> None:
        """Complete a call with the answer that has arrived."""
        if self._pending.calls.pop(call.call_id, None) is None:  # it was cancelled, or is late
            self._close(connection)
            return
        try:
            self._answer(call, connection, frame)
        except BaseException as error:  # no other thread will complete the call
            if is_interruption(error):
                raise
            if call.connection is connection:
                call.connection = None
                self._close(connection)
            if call.owner is self and not call.is_completed:
                call.fail(error)

    def _answer(
        self, call: ShmFuture, connection: ShmClientConnection, frame: framing.Fields
    ) -> None:
        """Complete a call that was taken out of `_pending`, after giving its connection away."""
        self._unwatch(connection)
        channel = call.channel
        call.connection = None
        assert channel is not None, "it is not completed"
        kind, _, _, body, buffers, _, _ = frame
        if kind == framing.STREAM:
            from launchpad.courier.client.stream_calls import open_stream

            try:
                stream = open_stream(channel, connection, call.method)
            except Exception as error:
                call.fail(error)
            else:
                call.succeed(stream, 0)
            return
        if kind == framing.NOT_RUN and body != framing.UNMAPPED:
            self._close(connection)  # a server that stops serves nothing more on this connection
        else:
            connection.is_refused |= kind == framing.NOT_RUN
            release_connection(channel, connection)
        try:
            value = decode_reply(self._peer, call.method, call.options, frame)
        except NotRun:
            self._hand_over(call)
        except BaseException as error:
            if is_interruption(error):
                raise
            call.fail(error)
        else:
            call.succeed(value, framing.size(body, buffers))

    def _lose(self, call: ShmFuture, connection: ShmClientConnection) -> None:
        """Resend or fail a call whose connection ended without an answer."""
        self._close(connection)
        if self._pending.calls.pop(call.call_id, None) is None:
            return
        call.connection = None
        request = call.request
        if request is None or not may_repeat(self._peer, call.method, call.options):
            call.fail(call_errors.lost(self._peer, call.method, connection.address))
        else:
            self._hand_over(call, request.small if request.spare is None else request.spare)

    def _resubmit(self, call: ShmFuture) -> None:
        if self._pending.calls.pop(call.call_id, None) is not None:
            self._hand_over(call)

    def _hand_over(self, call: ShmFuture, buffers: list[memoryview] | None = None) -> None:
        """Give the pipeline a call that was taken out of `_pending` and has not run, or may run twice.

        If the call has not run, its arrays are unchanged.
        """
        channel = call.channel
        request = call.request
        assert channel is not None, "it is not completed"
        assert request is not None, "it is not completed"
        try:
            if buffers is None:
                buffers = request.small if request.shared is None else request.shared.copy()
            call.request = None
            # The pool closes its pipelines after this object. So a pipeline that is made here is closed, too.
            with self._lock:
                if self._is_closed:
                    raise call_errors.closed(self._peer, call.method)
                pipeline = channel.connections.get_pipeline()
            pipeline.resubmit(call, request.body, buffers, request.headers)
        except BaseException as error:
            is_interrupted = is_interruption(error)
            if not (call.is_completed or (is_interrupted and call.cancel())):
                call.fail(CANCELLED if is_interrupted else error)
            if is_interrupted:
                raise

    def _claim(self, call: ShmFuture) -> ShmClientConnection | None:
        """Claim the call's connection until `_unclaim`, and return it. Return None if that is impossible."""
        # The outcome is in a list, so that it isn't lost if a signal handler raises; see interruptions.py.
        outcomes: list[bool] = []
        connection = None
        try:
            # A thread that drops the connection either gets the claim, or leaves the closing to this thread.
            with self._closing:
                outcomes.extend(map(call.claim.acquire, _TRY))
                if outcomes[0]:
                    connection = call.connection
        except BaseException:
            if outcomes and outcomes[0]:
                call.claim.release()
            raise
        if outcomes[0] and connection is None:
            call.claim.release()
        return connection

    def _unclaim(self, call: ShmFuture, connection: ShmClientConnection) -> None:
        """Release the claim, so that other threads can read."""
        with self._closing:
            if call.connection is connection:
                call.claim.release()
                return
        self._close(connection)  # another thread dropped it, and left the closing to this one

    def _watch(self, call: ShmFuture, connection: ShmClientConnection) -> None:
        poller = self._poller
        if poller is not None:
            poller.watch(call, connection)

    def _unwatch(self, connection: ShmClientConnection) -> None:
        poller = self._poller
        if poller is not None:
            poller.unwatch(connection)

    def _close(self, connection: ShmClientConnection) -> None:
        self._unwatch(connection)
        with self._closing:
            connection.close()

    # The poller.

    def _ensure_poller(self, is_first_due: bool) -> bool:
        """Start the poller if it is not running. Return False if it cannot be started."""
        if self._poller is None:
            return in_another_thread(self._start_poller, is_first_due)
        return self._start_poller(is_first_due)

    def _start_poller(self, is_first_due: bool) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            if self._poller is None:
                poller: AnswerPoller[ShmFuture] | None = None
                label = self._peer.label
                pending = self._pending
                try:
                    poller = AnswerPoller(
                        label, pending, self.read_now, self._on_tick, self._may_end
                    )
                    poller.thread.start()
                except (OSError, RuntimeError):  # out of descriptors, or of threads
                    if poller is not None:
                        poller.drop_inherited()
                    return False
                self._poller = poller
            elif is_first_due or not self._poller.is_ticking:
                self._poller.wake()
            return True

    def _on_tick(self, before: float) -> bool:
        """Watch the calls made before this time. Return True if other calls remain that no thread reads."""
        has_others = False
        for call in list(self._pending.calls.values()):
            assert isinstance(call, ShmFuture)
            is_too_new = call.connection is None or call.began > before
            has_others |= is_too_new or not (self.watch(call) or call.is_read)
        return has_others

    def _may_end(self) -> bool:
        """Return False if there are calls left for the poller."""
        with self._lock:
            if self._pending.calls and not self._is_closed:
                return False
            self._poller = None
            return True


class ShmFuture(PipelinedFuture):
    """The future of a call that has a connection of its own. In the pipeline it is like other futures."""

    __slots__ = ("calls", "claim", "connection", "is_read", "request")

    def __init__(
        self, calls: ShmCalls, channel: CallRoute, method: bytes, size: int, request: ShmRequest
    ) -> None:
        counts = channel.counts[method]
        super().__init__(calls, next_call_id(), method, channel.options, counts, size, channel)
        self.calls = calls
        self.request: ShmRequest | None = request
        self.connection: ShmClientConnection | None = None  # set while the call is in flight
        self.claim = Lock()
        self.is_read = False  # True while a thread that waits for the answer reads
        self.deadline = channel.options.find_deadline(self.began)

    def done(self) -> bool:
        if not self.is_completed:
            self.calls.read_now(self)
        return self.is_completed

    def watch(self) -> None:
        self.calls.watch(self)

    def _wait(self, timeout: float | None) -> None:
        began = _monotonic()
        if timeout is None or timeout > 0:
            self.calls.read_for(self, timeout)
        else:
            self.calls.read_now(self)
        if not self.is_completed:
            super()._wait(None if timeout is None else timeout - (_monotonic() - began))

    def _complete(self, bytes_in: int) -> None:
        self.request = None  # don't release it, because a thread may be about to send it
        super()._complete(bytes_in)
        self.calls.drop_connection(self)  # if there still is one, no answer came on it
