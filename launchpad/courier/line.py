"""A client's connection to a server on a socket, and the pool of them for calls that wait.

A caller that waits takes a connection of its own, writes its request with one system call, and
reads the answer in its own thread with another: no reader thread, no hop. The connection goes back
on top of the pool, so that a lone caller always uses the same one, at whose other end a server
thread is still reading.

When may a request be repeated? A server runs complete frames only. So as long as a write fails,
its frame was not complete, and nothing ran. That covers the server which has restarted since the
last call: the first write to the old connection fails. Once a request is written in full, and no
answer comes, the outcome is unknown.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier import codec, forking, greeting, wire
from launchpad.courier.carriers import unix
from launchpad.courier.carriers.unix import NO_SIGNAL, send_all
from launchpad.courier.errors import ProtocolError
from launchpad.courier.peer import MAX_TRIES, NotRun, Peer, is_final

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.pipeline import Pipeline

_MAX_IDLE = 16  # connections kept for later; a burst of threads may use more
_GREETING_S = 2.0  # then connect anew, and look at the verdict in between

_monotonic = time.monotonic
_encode_call = codec.encode_call
_encode_small = wire.encode_small


class Line:
    """One greeted connection, used by one thread at a time."""

    __slots__ = ("_decoder", "_recv_into", "_send", "_timeout_s", "is_sent", "sock", "was_used")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.was_used = False
        self.is_sent = False
        self._send = sock.send
        self._recv_into = sock.recv_into
        self._decoder = wire.Decoder()
        self._timeout_s = 0.0

    def limit(self, timeout_s: float) -> None:
        """No single send or receive takes longer; a system call only when it has changed."""
        if timeout_s != self._timeout_s:
            unix.set_timeouts(self.sock, timeout_s)
            self._timeout_s = timeout_s

    def exchange(
        self, method: bytes, body: bytes, buffers: Sequence[memoryview], timeout_us: int
    ) -> wire.Fields:
        """Writes a call and reads its answer.

        Raises OSError; BlockingIOError when the limit has passed. `is_sent` then tells whether
        the call had been written in full, and may have run.
        """
        self.is_sent = False
        if buffers or len(body) > wire.SMALL:
            send_all(self.sock, wire.encode(wire.CALL, 0, method, body, buffers, timeout_us))
        else:
            frame = _encode_small(wire.CALL, 0, method, body, timeout_us)
            if (n := self._send(frame, NO_SIGNAL)) != len(frame):
                send_all(self.sock, [frame[n:]])
        self.is_sent = True
        decoder = self._decoder
        n = self._recv_into(decoder.buffer)
        return decoder.received_alone(n) or self._received(n) or self.receive()

    def receive(self) -> wire.Fields:
        """The next frame. Raises OSError; BlockingIOError when the limit has passed."""
        reply = None
        while reply is None:
            reply = self._received(self._recv_into(self._decoder.buffer))
        return reply

    def _received(self, n: int) -> wire.Frame | None:
        if not n:
            raise ConnectionResetError("the connection ended")
        try:
            frames = self._decoder.received(n)
        except ProtocolError as error:
            raise ConnectionAbortedError(str(error)) from error
        return frames[0] if frames else None

    def close(self) -> None:
        self.sock.close()


def open_socket(peer: Peer, timeout_s: float | None, flags: int = 0) -> socket.socket | None:
    """Connects and greets once; None when no server is up, Refused when it does not want us."""
    limit_s = _GREETING_S if timeout_s is None else min(timeout_s, _GREETING_S)
    sock = None
    try:
        sock = unix.connect(unix.path_of(peer.address), limit_s)
        sock.settimeout(limit_s)
        sock.sendall(greeting.encode_greeting(peer.token, f"pid {os.getpid()}", flags))
        welcome = greeting.decode_welcome(unix.receive_exactly(sock, greeting.WELCOME_SIZE))
        peer.check_welcome(welcome)
        sock.settimeout(None)
        return sock
    except BaseException as error:
        if sock is not None:
            sock.close()
        if is_final(error) or not isinstance(error, OSError):
            raise
        return None


class SocketChannel:
    """Makes the calls of one client over sockets. Safe from any number of threads."""

    def __init__(self, peer: Peer) -> None:
        unix.path_of(peer.address)
        self._peer = peer
        self._timeout_s = peer.call_timeout
        self._idle: deque[Line] = deque()
        self._lock = threading.Lock()
        self._pipeline: Pipeline | None = None
        forking.drop_in_child(self)
        # Not the client's: `Client(address).method` outlives the client that made it.
        weakref.finalize(self, _close_all, self._idle)

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread."""
        body, buffers = _encode_call(args, kwargs)
        idle = self._idle
        deadline = None if self._timeout_s is None else _monotonic() + self._timeout_s
        tries = timeout_us = 0
        while True:
            try:
                line = idle.pop()
            except IndexError:
                line = self._open(method, deadline)
            try:
                if deadline is not None:
                    timeout_us = self._limit(line, method, deadline)
                try:
                    reply = line.exchange(method, body, buffers, timeout_us)
                except OSError as error:
                    if not line.is_sent:
                        tries += not line.was_used
                        self._check_unsent(error, method, tries)
                        line.close()
                        continue
                    reply = self._receive_on(error, line, method, deadline)
            except BaseException:  # a KeyboardInterrupt too: an answer may be on its way here
                line.close()
                raise
            if len(idle) < _MAX_IDLE:
                line.was_used = True
                idle.append(line)
            else:
                line.close()
            try:
                return self._peer.open_reply(method, reply[0], reply[3], reply[4])
            except NotRun:
                continue

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting. All such calls of a client share one connection."""
        pipeline = self._pipeline or self._open_pipeline()
        return pipeline.submit(method, args, kwargs)

    def close(self) -> None:
        """Closes what is open; a later call opens it again."""
        with self._lock:
            pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
        _close_all(self._idle)

    def drop_inherited(self) -> None:
        """For a forked child: forgets the parent's connections."""
        self._lock = threading.Lock()
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.drop_inherited()
        _close_all(self._idle)

    def _open(self, method: bytes, deadline: float | None) -> Line:
        peer = self._peer
        return Line(peer.wait_for(lambda left: open_socket(peer, left), method, deadline))

    def _limit(self, line: Line, method: bytes, deadline: float) -> int:
        """Sets the kernel's timer; returns what the server shall know, in µs.

        A fresh call gets exactly the client's timeout, so that the timer need not be set again for
        every call.
        """
        peer = self._peer
        left = peer.time_left(method, deadline)
        assert left is not None
        assert peer.call_timeout is not None
        is_full = left > peer.call_timeout * 0.999
        line.limit(peer.call_timeout if is_full else left)
        return max(1, int(left * 1e6))

    def _check_unsent(self, error: OSError, method: bytes, tries: int) -> None:
        """Returns if a request that was not written in full is to be tried again."""
        if isinstance(error, BlockingIOError):
            raise self._peer.late(method) from None
        if tries >= MAX_TRIES:
            self._peer.raise_verdict()
            raise self._peer.not_taken(method, error) from error

    def _receive_on(
        self, error: OSError, line: Line, method: bytes, deadline: float | None
    ) -> wire.Fields:
        """Goes on receiving after the kernel's timer, while there is time left."""
        while isinstance(error, BlockingIOError):
            left = self._peer.time_left(method, deadline)
            line.limit(left or 0.0)
            try:
                return line.receive()
            except OSError as next_error:
                error = next_error
        raise self._peer.lost(method) from error

    def _open_pipeline(self) -> Pipeline:
        from launchpad.courier.pipeline import Pipeline

        with self._lock:
            if self._pipeline is None:
                self._pipeline = Pipeline(self._peer)
            return self._pipeline


def _close_all(lines: deque[Line]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            lines.pop().close()
