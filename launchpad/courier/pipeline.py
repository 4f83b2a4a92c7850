"""Calls that do not wait: any number in flight on one connection of the client.

    submit ──▶ Outbox ──write──▶ server
                                   │
    future ◀── reader thread ◀─────┘      one per client, while there is something to wait for

The reader thread connects (and waits for a server that is not up yet), reads many answers at
once, and sets the futures; their callbacks run on it. When the connection ends, calls that had not
been written go to the next connection, all others end with OutcomeUnknown.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from launchpad.courier import codec, wire
from launchpad.courier.carriers import sockets
from launchpad.courier.counts import Counts
from launchpad.courier.errors import ProtocolError
from launchpad.courier.future import CallFuture
from launchpad.courier.greeting import OVERLAP
from launchpad.courier.line import open_socket
from launchpad.courier.options import Options
from launchpad.courier.outbox import Outbox
from launchpad.courier.peer import MAX_TRIES, NotRun, Peer, next_pause
from launchpad.courier.serving import serving

_IDLE_S = 3.0  # nothing in flight for this long: the connection is closed, the thread ends
_SCRATCH = 128 << 10


class _InFlight:
    """A call without an answer yet. Keeps its frame's parts, should it have to be sent again."""

    __slots__ = ("body", "buffers", "deadline", "future", "method", "notes", "options", "tries")

    def __init__(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        options: Options,
        deadline: float | None,
        notes: bytes,
    ) -> None:
        self.options = options
        self.notes = notes
        self.future = CallFuture()
        self.method = method
        self.body = body
        self.buffers = buffers
        self.deadline = deadline
        self.tries = 0


class Pipeline:
    """The shared connection of one client. Safe from any thread."""

    def __init__(self, peer: Peer, counts: Counts) -> None:
        self._peer = peer
        self._counts = counts
        self._lock = threading.Lock()
        self._calls: dict[int, _InFlight] = {}
        self._deadlines: list[tuple[float, int]] = []  # a heap, of calls that may be done by now
        self._last_id = 0
        self._outbox = Outbox()
        self._sock: socket.socket | None = None
        self._deaf: socket.socket | None = None  # it takes no more, but may still give
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def submit(
        self,
        method: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
        notes: bytes = b"",
    ) -> CallFuture:
        body, views = codec.encode((args, kwargs))
        # Copies, because the caller may change its arrays as soon as this returns.
        buffers = [memoryview(bytearray(view)) for view in views]
        timeout_s, on_behalf_of = options.timeout_s, serving.get()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if on_behalf_of is not None:
            deadline = on_behalf_of.limit(deadline)
        call = _InFlight(method, body, buffers, options, deadline, notes)
        with self._lock:
            call_id = self._enter(call)
            if self._thread is None:
                self._start()
        call.future.set_on_cancel(partial(self._cancel, call_id))
        self._flush()
        return call.future

    @property
    def is_connected(self) -> bool:
        return self._sock is not None

    def close(self) -> None:
        """Closes the connection and ends the thread. Calls in flight end with an error."""
        self._closing.set()
        with self._lock:
            thread = self._thread
            self._shut_down()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def drop_inherited(self) -> None:
        """For a forked child: the reader thread is the parent's, and so are the calls."""
        if (sock := self._sock) is not None:
            sock.close()

    def _enter(self, call: _InFlight) -> int:
        if self._closing.is_set():
            raise self._peer.closed(call.method)
        self._last_id += 1
        self._calls[self._last_id] = call
        if call.deadline is not None:
            heapq.heappush(self._deadlines, (call.deadline, self._last_id))
        timeout_us = 0 if call.deadline is None else _micros_left(call.deadline)
        frame = wire.encode(
            wire.CALL,
            self._last_id,
            call.method,
            call.body,
            call.buffers,
            timeout_us,
            call.notes,
        )
        self._outbox.put(self._last_id, frame)
        return self._last_id

    def _start(self) -> None:
        name = f"courier-futures-{self._peer.server or self._peer.address}"
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _flush(self) -> None:
        # The reader must never wait for the server to read: the server may be waiting for it.
        may_wait = threading.current_thread() is not self._thread
        while (sock := self._sock) is not None and sock is not self._deaf:
            try:
                self._outbox.flush(sock, wait=may_wait)
                return
            except BlockingIOError:
                return  # the reader goes on when the socket takes more
            except OSError:
                # A server that stops reads no more, but may still answer. The reader will see the
                # end, and sort out what has been sent.
                if self._sock is sock:
                    self._deaf = sock

    def _shut_down(self) -> None:
        if (sock := self._sock) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _cancel(self, call_id: int) -> None:
        with self._lock:
            if self._calls.pop(call_id, None) is None:
                return
        self._outbox.put(0, wire.encode(wire.CANCEL, call_id))
        self._flush()

    # The reader thread, in the order in which it runs.

    def _main(self) -> None:
        while not self._may_end():
            try:
                sock = self._connect()
            except Exception as error:
                self._fail_all(error)
                continue
            self._sock = sock
            again = self._read_until_end(sock)
            self._sock = None
            self._sort_out(again)
            sock.close()

    def _may_end(self) -> bool:
        if self._closing.is_set():
            self._fail_all(None)
        with self._lock:
            if self._calls:
                return False
            self._outbox.take_unsent()
            self._thread = None
            return True

    def _connect(self) -> socket.socket:
        pause_s = next_pause()
        while (sock := open_socket(self._peer, self._patience_s(), OVERLAP)) is None:
            self._check_wait()
            self._expire()
            with self._lock:
                method = next((call.method for call in self._calls.values()), b"")
            if self._closing.wait(pause_s):
                raise self._peer.closed(method)
            pause_s = next_pause(pause_s)
        return sock

    def _check_wait(self) -> None:
        """Fails the calls for which there is no point in waiting."""
        with self._lock:
            calls = list(self._calls.items())
        for call_id, call in calls:
            try:
                self._peer.check_wait(call.method, call.options)
            except Exception as error:
                self._calls.pop(call_id, None)
                call.future.fail(error)

    def _read_until_end(self, sock: socket.socket) -> list[_InFlight]:
        """Returns, after the connection has ended, the calls that the server has sent back."""
        decoder = wire.Decoder(scratch_bytes=_SCRATCH)
        again: list[_InFlight] = []
        with contextlib.suppress(OSError, ProtocolError):
            sockets.set_receive_timeout(sock, _IDLE_S)
            while n := self._receive(sock, decoder):
                for frame in decoder.received(n):
                    self._resolve(frame, again)
        return again

    def _receive(self, sock: socket.socket, decoder: wire.Decoder) -> int:
        """Bytes received; 0 when the connection has ended, or idled for long enough."""
        while True:
            self._flush()
            if self._deadlines or self._wants_to_write:
                self._poll(sock)
            try:
                return sock.recv_into(decoder.buffer)
            except BlockingIOError:
                if self._give_up_if_idle():
                    return 0

    def _poll(self, sock: socket.socket) -> None:
        """Waits until there is something to read; meanwhile writes, and watches the deadlines."""
        poller = select.poll()
        end = time.monotonic() + _IDLE_S
        while time.monotonic() < end:
            self._expire()
            interest = select.POLLIN | (select.POLLOUT if self._wants_to_write else 0)
            poller.register(sock, interest)
            events = poller.poll(self._patience_s() * 1000)
            if any(event & ~select.POLLOUT for _, event in events):
                return
            self._flush()

    @property
    def _wants_to_write(self) -> bool:
        return not self._outbox.is_empty and self._deaf is not self._sock

    def _give_up_if_idle(self) -> bool:
        with self._lock:
            if self._calls:
                return False
            self._sock = None  # whoever submits from now on leaves it to us to connect anew
            return True

    def _patience_s(self) -> float:
        """Until the first deadline."""
        with self._lock:
            first = self._deadlines[0][0] if self._deadlines else None
        left = _IDLE_S if first is None else max(0.0, first - time.monotonic())
        return min(left + 0.0005, _IDLE_S)

    def _resolve(self, frame: wire.Fields, again: list[_InFlight]) -> None:
        call = self._calls.pop(frame[1], None)
        if call is None:
            return  # cancelled, or too late
        try:
            call.future.settle(lambda: self._peer.open_reply(call.method, call.options, frame))
        except NotRun:
            again.append(call)

    def _sort_out(self, again: list[_InFlight]) -> None:
        """The connection has ended: what never ran is entered anew, the rest is lost."""
        unsent = {call_id for call_id, _ in self._outbox.take_unsent()}
        with self._lock:
            calls, self._calls = self._calls, {}
            again += [call for call_id, call in calls.items() if call_id in unsent]
            self._enter_again(again)
        for call_id, call in calls.items():
            if call_id not in unsent:
                call.future.fail(self._peer.lost(call.method))

    def _enter_again(self, again: list[_InFlight]) -> None:
        for call in again:
            call.tries += 1
            if call.tries > MAX_TRIES or self._closing.is_set():
                error = ConnectionResetError("the connection ended before it was sent")
                call.future.fail(self._peer.not_taken(call.method, error))
            elif not call.future.done():
                call_id = self._enter(call)
                call.future.set_on_cancel(partial(self._cancel, call_id))

    def _expire(self) -> None:
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._deadlines or self._deadlines[0][0] > now:
                    return
                call = self._calls.pop(heapq.heappop(self._deadlines)[1], None)
            if call is not None:
                call.future.fail(self._peer.late(call.method, call.options))

    def _fail_all(self, error: Exception | None) -> None:
        with self._lock:
            calls, self._calls = self._calls, {}
            self._outbox.take_unsent()
        for call in calls.values():
            call.future.fail(error or self._peer.closed(call.method))


def _micros_left(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1e6))
