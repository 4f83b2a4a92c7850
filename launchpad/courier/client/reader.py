"""The thread of a pipeline: connects, reads the answers, completes the calls.

    connect ──▶ read and complete ──▶ the connection has ended ──▶ calls left? connect anew
       ▲               │                                               │
  (server is not up)   └─ nothing in flight for `_IDLE_S` ──▶ end ◀────┘

It reads many answers at once, and the callbacks of the calls run on it. When a connection ends, calls
that had not been written go to the next one, and so do those that may run twice, or that the server
has sent back. The others end with OutcomeUnknown.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable

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

    Much of its state is that of the connection that there is. It stands here, and not in an object for each
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
        self._may_end = may_end  # asked when nothing is in flight; False if there is, after all
        self.wakeup = WakeupSocketpair()
        self._is_closing = False
        self._is_retiring = False
        self.address: str | None = None  # of the connection that there is
        self._is_refused = False  # the server takes no more calls on this connection
        self._got_goaway = False  # nor has it run any that it has not answered
        self._failures = 0  # connections in a row that took no call
        self._pause_s = 0.0  # before the next attempt to connect
        self._has_ended = False  # the connection is of no more use
        self._was_busy = False  # since the last look, without this thread
        self._waits_for = select.POLLIN  # from the connection
        #: It waits, or is about to: a thread that puts something into the queue must wake it.
        self.must_be_woken = False
        name = f"courier-futures-{peer.label}"
        self.thread = OwnThread(target=self._main, name=name)

    def flush(self) -> bool:
        """Writes what is in the queue. False when the socket takes no more now.

        Other threads wait then. The reader must not: the server may be waiting until it reads.
        """
        return self._flush(wait=_get_ident() != self.thread.ident)

    def _flush(self, *, wait: bool) -> bool:
        try:
            return self._queue.flush(wait=wait)
        except BaseException as error:
            if is_interruption(error):
                self.wake()  # it writes what other threads have left to this one
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
        """Ends the connection and the thread; calls in flight end with an error."""
        self._is_closing = True
        self.wakeup.wake()
        if _get_ident() != self.thread.ident:
            self.thread.join()

    def retire(self) -> None:
        """The server has moved: ends the connection as soon as nothing is in flight."""
        self._is_retiring = True
        self.wake()

    # The thread, in the order in which it runs.

    def _main(self) -> None:
        while not self._may_end(self):
            try:
                while True:
                    pause(self._peer.address, self._pause_s)
                    self._pause_s = next_pause(self._pause_s)
                    if self._is_closing:
                        raise call_errors.closed(self._peer, b"")
                    found = open_socket(self._peer, self._poll_timeout_s(), OVERLAP)
                    if found is not None:
                        break
                    self._pending.fail_not_ready()
                    self._pending.fail_late()
                    if not self._pending.calls:  # all have ended: there is nothing to connect for
                        break
                if found is None:
                    continue
                sock, address = found
                self.address = address
                with contextlib.closing(sock):
                    try:
                        # After the handshake, because threads add a call first, and then look at its limit.
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
        """The connection is there; for readers that do not wait for it alone."""

    def _read(self, receive: Receive, decoder: framing.FrameDecoder) -> None:
        """Completes the calls whose answers are there. Raises OSError, ProtocolError."""
        try:
            n = receive(decoder.buffer)
        except BlockingIOError:
            return  # what has arrived is not enough to be decrypted
        if not n:
            self._has_ended = True
            return
        frames = decoder.received(n)
        again = self._pending.complete(frames)
        self._got_goaway = bool(frames) and framing.is_goaway(frames[-1])
        if again or self._is_refused:
            # The server stops: it has sent calls back, and would do so with others.
            self._is_refused = True
            self._queue.disconnect()
            for call in again:
                self._requeue(call)
            self._pending.fail_not_ready()
            # Whether no call waits for an answer on this connection any more:
            self._has_ended = not any(call.is_sent for call in list(self._pending.calls.values()))

    def _wait(self, sock: Socket, poller: select.poll) -> bool:
        """Waits until there is something to read; meanwhile writes, and watches the deadlines.

        False when there has been nothing to do for a while, or the client is closed.
        """
        while not (self._is_closing or self._has_ended):
            self.must_be_woken = True  # first, because frames go on to be put
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
        """Until the first deadline."""
        first = self._pending.deadlines.first()
        left = _IDLE_S if first is None else max(0.0, first - time.monotonic())
        return min(left + 0.0005, _IDLE_S)

    def _after_disconnect(self, address: str) -> None:
        """The connection has ended: what may run goes out again, the rest is lost."""
        for call in list(self._pending.calls.values()):
            if call.is_sent:
                may_run_again = self._got_goaway or may_repeat(
                    self._peer, call.method, call.options
                )
                if may_run_again and not self._is_closing:
                    self._requeue(call)
                else:
                    self._pending.fail(call, call_errors.lost(self._peer, call.method, address))
        self._failures = 0 if self._queue.has_written else self._failures + 1
        if self._failures >= MAX_TRIES:
            reason = ConnectionResetError("connections end before anything is sent")
            self._pending.fail_all(lambda method: call_errors.not_taken(self._peer, method, reason))
        if not self._is_refused:
            self._pause_s = 0.0
        self._is_refused = self._got_goaway = False

    def _requeue(self, call: PipelinedFuture) -> None:
        call.is_sent = False
        self._pending.add(call)
        self._queue.put(call)
