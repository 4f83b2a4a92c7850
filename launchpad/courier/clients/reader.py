"""The thread of a pipeline: connects, reads the answers, settles the calls.

    connect ──▶ read and settle ──▶ the connection has ended ──▶ calls left? connect anew
       ▲               │                                              │
  (server is not up)   └─ nothing in flight for `_IDLE_S` ──▶ end ◀───┘

It reads many answers at once, and the callbacks of the calls run on it. When a connection ends, calls
that had not been written go to the next one, and so do those that may run twice, or that the server
says it has not run. The others end with OutcomeUnknown.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

from launchpad.courier.carriers.sockets import Socket, has_pending
from launchpad.courier.clients.bell import Bell
from launchpad.courier.clients.in_flight import InFlight
from launchpad.courier.clients.ledger import Ledger
from launchpad.courier.clients.line import Connected, open_socket
from launchpad.courier.clients.outbox import Outbox
from launchpad.courier.clients.peer import MAX_TRIES, Peer, next_pause
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import wire
from launchpad.courier.protocol.greeting import OVERLAP

_IDLE_S = 3.0
_SCRATCH = 128 << 10

_monotonic = time.monotonic


class Reader:
    """Lives while there are calls, and a little longer.

    Args:
        may_end: asked when there is nothing in flight; False if there is, after all.
    """

    def __init__(
        self, peer: Peer, ledger: Ledger, outbox: Outbox, may_end: Callable[[Reader], bool]
    ) -> None:
        self._peer = peer
        self._ledger = ledger
        self._outbox = outbox
        self._may_end = may_end
        self._bell = Bell()
        self._is_closing = False
        self._is_leaving = False
        #: Of the connection that there is.
        self.address: str | None = None
        self._is_refused = False  # the server takes no more calls on this connection
        self._is_dismissed = False  # nor has it run any that it has not answered
        self._failures = 0  # connections in a row that took no call
        self._pause_s = 0.0  # before the next attempt to connect
        #: It waits, or is about to: who leaves something in the outbox must wake it.
        self.must_be_woken = False
        name = f"courier-futures-{peer.label}"
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    @property
    def is_current(self) -> bool:
        """It is the thread that asks."""
        return threading.get_ident() == self._thread.ident

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:
            self._bell.close()
            raise

    def wake(self) -> None:
        self.must_be_woken = False
        self._bell.ring()

    def close(self) -> None:
        """Ends the connection and the thread; calls in flight end with an error."""
        self._is_closing = True
        self._bell.ring()
        if not self.is_current:
            self._thread.join()

    def leave(self) -> None:
        """The server has moved: ends the connection as soon as nothing is in flight."""
        self._is_leaving = True
        self.wake()

    def drop_inherited(self) -> None:
        self._bell.drop_inherited()

    # The thread, in the order in which it runs.

    def _main(self) -> None:
        while not self._may_end(self):
            try:
                self._use(*self._connect())
            except Exception as error:
                self._ledger.fail_all(error)
        self._bell.close()

    def _use(self, sock: Socket, address: str) -> None:
        self.address = address
        with contextlib.closing(sock):
            try:
                self._begin(sock)
                self._read_until_end(sock)
            finally:
                self.address = None
                self._outbox.disconnect()
        self._sort_out(address)

    def _connect(self) -> Connected:
        while True:
            time.sleep(self._pause_s)
            self._pause_s = next_pause(self._pause_s)
            if self._is_closing:
                raise self._peer.closed(b"")
            found = open_socket(self._peer, self._patience_s(), OVERLAP)
            if found is not None:
                return found
            self._ledger.fail_impatient()
            self._ledger.fail_late()

    def _begin(self, sock: Socket) -> None:
        """Sends what has waited for the connection, with the time that is left to it by now."""
        welcome = self._peer.welcome
        # First, because calls go on to be entered; who enters one looks the other way around.
        self._outbox.max_bytes = wire.MAX_BYTES if welcome is None else welcome.max_bytes
        self._ledger.fail_too_large(self._outbox.max_bytes)
        self._ledger.restamp()
        self._outbox.connect(sock)

    def _read_until_end(self, sock: Socket) -> None:
        decoder = wire.Decoder(max_bytes=self._peer.max_bytes, most_scratch_bytes=_SCRATCH)
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        with contextlib.suppress(OSError, ProtocolError):
            while self._wait(sock, poller):
                try:
                    n = sock.recv_into(decoder.buffer, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue  # what has arrived is not enough to be decrypted
                if not n:
                    return
                frames = decoder.received(n)
                again = self._ledger.settle(frames)
                self._is_dismissed = bool(frames) and wire.is_farewell(frames[-1])
                if (again or self._is_refused) and self._retreat(again):
                    return

    def _wait(self, sock: Socket, poller: select.poll) -> bool:
        """Waits until there is something to read; meanwhile writes, and watches the deadlines.

        False when there has been nothing to do for a while, or the client is closed.
        """
        while not self._is_closing:
            self.must_be_woken = True  # first, because frames go on to be put
            has_written = self._outbox.flush(wait=False)
            poller.modify(sock, select.POLLIN if has_written else select.POLLIN | select.POLLOUT)
            is_pending = has_pending(sock)
            events = dict(poller.poll(0 if is_pending else self._patience_s() * 1000))
            self.must_be_woken = False
            if events.pop(self._bell.fileno(), 0):
                self._bell.silence()
                if self._is_leaving and not self._ledger.calls:
                    return False
            elif not (events or is_pending or self._ledger.calls):
                return False
            self._ledger.fail_late()
            if is_pending or events.get(sock.fileno(), 0) & ~select.POLLOUT:
                return True
        return False

    def _patience_s(self) -> float:
        """Until the first deadline."""
        first = self._ledger.deadlines.first()
        left = _IDLE_S if first is None else max(0.0, first - _monotonic())
        return min(left + 0.0005, _IDLE_S)

    def _retreat(self, again: list[InFlight]) -> bool:
        """The server stops: it has sent calls back, and would do so with others.

        True when no call waits for an answer on this connection any more.
        """
        self._is_refused = True
        self._outbox.stop()
        for call in again:
            self._enter_again(call)
        self._ledger.fail_impatient()
        return not any(call.is_sent for call in self._ledger.snapshot())

    def _sort_out(self, address: str) -> None:
        """The connection has ended: what may run goes out again, the rest is lost."""
        for call in self._ledger.snapshot():
            if call.is_sent:
                if not self._is_closing and self._may_repeat(call):
                    self._enter_again(call)
                else:
                    self._ledger.fail(call, self._peer.lost(call.method, address))
        self._failures = 0 if self._outbox.has_written else self._failures + 1
        if self._failures >= MAX_TRIES:
            reason = ConnectionResetError("connections end before anything is sent")
            self._ledger.fail_all(lambda method: self._peer.not_taken(method, reason))
        if not self._is_refused:
            self._pause_s = 0.0
        self._is_refused = self._is_dismissed = False

    def _may_repeat(self, call: InFlight) -> bool:
        return self._is_dismissed or self._peer.may_repeat(call.method, call.options)

    def _enter_again(self, call: InFlight) -> None:
        call.is_sent = False
        self._ledger.enter(call)
        self._outbox.put(call)
