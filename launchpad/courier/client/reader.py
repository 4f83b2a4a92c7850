"""The thread of a pipeline, which connects, reads the answers, and completes the calls.

    connect ──▶ read and complete ──▶ the connection has ended ──▶ calls left? connect again
       ▲               │                                               │
  (server is not up)   └─ nothing in flight for `_IDLE_S` ──▶ end ◀────┘

The thread reads many answers at once, and runs the callbacks of the calls. When a connection ends, three
kinds of calls go to the next connection: calls that had not been written, calls that may run twice, and
calls that the server has sent back. The others end with OutcomeUnknown.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable

from launchpad.courier import log
from launchpad.courier.client import call_errors
from launchpad.courier.client.call import MAX_TRIES, may_repeat, next_pause, pause
from launchpad.courier.client.connection import open_socket
from launchpad.courier.client.future import PipelinedFuture
from launchpad.courier.client.pending_calls import PendingCalls
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import is_interruption
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.protocol import framing
from launchpad.courier.protocol.handshake import OVERLAP
from launchpad.courier.transport.quick_io import QuickIO
from launchpad.courier.transport.stream_socket import Socket, WakeupSocketpair, has_pending
from launchpad.courier.transport.write_queue import WriteQueue

_IDLE_S = 3.0
_SCRATCH = 128 << 10

Receive = Callable[[memoryview], int]

_get_ident = threading.get_ident


class Reader:
    """A thread that runs while there are calls, and a little longer.

    Much of the reader's state belongs to the current connection. This state isn't in an object for each
    connection, because the event loop of a `LoopReader` may still change it when that connection ends.
    """

    def __init__(
        self,
        peer: ServerInfo,
        pending: PendingCalls,
        queue: WriteQueue,
        may_end: Callable[[Reader], bool],
    ) -> None:
        self._peer = peer
        self._pending = pending
        self._queue = queue
        # The thread calls `may_end` when nothing is in flight. It returns False if something is, after all.
        self._may_end = may_end
        self.wakeup = WakeupSocketpair()
        self._is_closing = False
        self._is_retiring = False
        self.address: str | None = None  # the current connection's
        self._is_refused = False  # the server takes no more calls on this connection
        self._got_goaway = False  # the server has run only the calls that it has answered
        self._failures = 0  # connections in a row that took no call
        self._pause_s = 0.0  # before the next attempt to connect
        self._has_ended = False  # the connection can't be used any more
        self._was_busy = False  # something other than the thread has read since the last look
        self._waits_for = select.POLLIN  # poll events of the connection
        #: True while the thread waits or is about to wait. Other threads that put something into the queue
        #: must wake it.
        self.must_be_woken = False
        name = f"courier-futures-{peer.label}"
        self.thread = OwnThread(target=self._main, name=name)

    def flush(self) -> bool:
        """Write what is in the queue. Return False if the socket takes no more for now.

        Threads other than the reader's wait until the socket takes more. The reader itself must
        not wait, because the server may be waiting until the reader reads.
        """
        return self._flush(wait=_get_ident() != self.thread.ident)

    def _flush(self, *, wait: bool) -> bool:
        try:
            return self._queue.flush(wait=wait)
        except BaseException as error:
            if is_interruption(error):
                self.wake()  # the reader writes what other threads have left to this thread
                raise
            if not isinstance(error, OSError):
                raise
            return True  # a server that stops reads no more, but may still answer: go on reading

    def wake(self) -> None:
        self.must_be_woken = False
        try:
            self.wakeup.wake()
        except BaseException:  # interrupted
            self.must_be_woken = True
            raise

    def close(self) -> None:
        """End the connection and the thread. Calls in flight end with an error."""
        self._is_closing = True
        self.wakeup.wake()
        if _get_ident() != self.thread.ident:
            self.thread.join()

    def retire(self) -> None:
        """End the connection once nothing is in flight, because the server has moved."""
        self._is_retiring = True
        self.wake()

    # The methods that the thread runs, in order.

    def _main(self) -> None:
        while not self._may_end(self):
            try:
                while True:
                    pause(self._peer.address, self._pause_s)
                    self._pause_s = next_pause(self._pause_s)
                    if self._is_closing:
                        raise call_errors.closed(self._peer, b"")
                    connected_socket = open_socket(self._peer, self._poll_timeout_s(), OVERLAP)
                    if connected_socket is not None:
                        break
                    self._pending.fail_not_ready()
                    self._pending.fail_late()
                    if not self._pending.calls:  # all calls have ended, so don't connect
                        break
                if connected_socket is None:
                    continue
                sock, address = connected_socket
                self.address = address
                with contextlib.closing(sock):
                    try:
                        # This must come after the handshake, which gives the server's limit. Other threads
                        # add a call first, and then look at the limit. So a call that is too large is found
                        # either here or there.
                        self._pending.fail_too_large()
                        self._pending.refresh_timeouts()
                        self._queue.connect(sock)
                        self._read_until_end(sock)
                    finally:
                        self.address = None
                        self._queue.disconnect()
                self._after_disconnect(address)
            except Exception as error:
                self._pending.fail_all(error)
        self.wakeup.close()

    def _read_until_end(self, sock: Socket) -> None:
        decoder = framing.FrameDecoder(max_bytes=self._peer.max_bytes, most_scratch_bytes=_SCRATCH)
        receive = QuickIO(sock).receive
        self._has_ended = False
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        poller.register(self.wakeup, select.POLLIN)
        self._begin(sock, receive, decoder)
        with contextlib.suppress(OSError, ProtocolError):
            while self._wait(sock, poller):
                self._read(receive, decoder)

    def _begin(self, sock: Socket, receive: Receive, decoder: framing.FrameDecoder) -> None:
        """Prepare for a new connection. Readers that also read outside of this thread override this."""

    def _read(self, receive: Receive, decoder: framing.FrameDecoder) -> None:
        """Complete the calls whose answers have arrived. Raises OSError or ProtocolError."""
        try:
            n = receive(decoder.buffer)
        except BlockingIOError:
            return  # too little has arrived to be decrypted
        if not n:
            self._has_ended = True
            return
        frames = decoder.received(n)
        again = self._pending.complete(frames)
        self._got_goaway = bool(frames) and framing.is_goaway(frames[-1])
        if again or self._is_refused:
            # The server is stopping. It has sent calls back, and would send other calls back, too.
            self._is_refused = True
            self._queue.disconnect()
            for call in again:
                self._requeue(call)
            self._pending.fail_not_ready()
            # The connection has ended once no call waits for an answer on it.
            self._has_ended = not any(call.is_sent for call in list(self._pending.calls.values()))

    def _wait(self, sock: Socket, poller: select.poll) -> bool:
        """Wait until there is something to read. Until then write, and watch the deadlines.

        Returns False after a while with nothing to do, or when the client is closed.
        """
        while not (self._is_closing or self._has_ended):
            # Set this before the flush: another thread may queue a frame just after the flush. That thread
            # must see that it has to wake this one.
            self.must_be_woken = True
            self._was_busy = False
            has_written = self.flush()
            poller.modify(sock, self._waits_for | (0 if has_written else select.POLLOUT))
            is_pending = has_pending(sock)
            timeout_s = 0.0 if is_pending else self._poll_timeout_s()
            events = dict(poller.poll(timeout_s * 1000))
            self.must_be_woken = False
            if events.pop(self.wakeup.fileno(), 0):
                self.wakeup.drain()
                if self._is_retiring and not self._pending.is_needed:
                    return False
            elif not (events or self._was_busy or timeout_s < _IDLE_S or self._pending.is_needed):
                return False
            self._pending.fail_late()
            if is_pending or events.get(sock.fileno(), 0) & ~select.POLLOUT:
                return True
        return False

    def _poll_timeout_s(self) -> float:
        """Return the seconds until the first deadline, at most `_IDLE_S`."""
        first = self._pending.deadlines.first()
        remaining_s = _IDLE_S if first is None else max(0.0, first - time.monotonic())
        return min(remaining_s + 0.0005, _IDLE_S)

    def _after_disconnect(self, address: str) -> None:
        """Handle the end of a connection: requeue the calls that may be sent again, and fail the others."""
        n_lost = 0
        n_again = 0
        for call in list(self._pending.calls.values()):
            if call.is_sent:
                may_run_again = self._got_goaway or may_repeat(
                    self._peer, call.method, call.options
                )
                if may_run_again and not self._is_closing:
                    self._requeue(call)
                    n_again += 1
                else:
                    self._pending.fail(call, call_errors.lost(self._peer, call.method, address))
                    n_lost += 1
        log.debug(
            "connection to %s ended: of its futures %d are sent again, %d may have run",
            self._peer.describe(address),
            n_again,
            n_lost,
        )
        self._failures = 0 if self._queue.has_written else self._failures + 1
        if self._failures >= MAX_TRIES:
            reason = ConnectionResetError("connections end before anything is sent")
            self._pending.fail_all(lambda method: call_errors.not_taken(self._peer, method, reason))
        if not self._is_refused:
            self._pause_s = 0.0
        self._is_refused = False
        self._got_goaway = False

    def _requeue(self, call: PipelinedFuture) -> None:
        call.is_sent = False
        self._pending.add(call)
        self._queue.put(call)
