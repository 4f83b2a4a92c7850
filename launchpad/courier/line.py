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
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from launchpad.courier import codec, wire
from launchpad.courier.carriers import unix
from launchpad.courier.errors import DeadlineExceeded, ProtocolError
from launchpad.courier.peer import MAX_TRIES, NotRun, Peer, is_final

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.pipeline import Pipeline

_MAX_IDLE = 16  # connections kept for later; a burst of threads may use more
_GREETING_S = 2.0  # then connect anew, and look at the verdict in between

_monotonic = time.monotonic


class Line:
    """One greeted connection, used by one thread at a time."""

    __slots__ = ("_decoder", "_timeout_s", "sock", "was_used")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.was_used = False
        self._decoder = wire.Decoder()
        self._timeout_s = 0.0

    def limit(self, timeout_s: float) -> None:
        """No single send or receive takes longer; a system call only when it has changed."""
        if timeout_s != self._timeout_s:
            unix.set_timeouts(self.sock, timeout_s)
            self._timeout_s = timeout_s

    def receive(self) -> wire.Frame:
        decoder, recv_into = self._decoder, self.sock.recv_into
        while True:
            n = recv_into(decoder.get_buffer())
            if not n:
                raise ConnectionResetError("the connection ended")
            if frames := decoder.received(n):
                self.was_used = True
                return frames[0]

    def close(self) -> None:
        self.sock.close()


def open_socket(peer: Peer, timeout_s: float | None, flags: int = 0) -> socket.socket | None:
    """Connects and greets once; None when no server is up, Refused when it does not want us."""
    limit_s = _GREETING_S if timeout_s is None else min(timeout_s, _GREETING_S)
    sock = None
    try:
        sock = unix.connect(unix.path_of(peer.address), limit_s)
        sock.settimeout(limit_s)
        sock.sendall(wire.encode_greeting(peer.token, f"pid {os.getpid()}", flags))
        welcome = wire.decode_welcome(unix.receive_exactly(sock, wire.WELCOME_SIZE))
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
        self._idle: deque[Line] = deque()
        self._pipeline: Pipeline | None = None
        # Not the client's: `Client(address).method` outlives the client that made it.
        weakref.finalize(self, _close_all, self._idle)

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread."""
        peer = self._peer
        body, buffers = codec.encode((args, kwargs))
        deadline = None if peer.call_timeout is None else _monotonic() + peer.call_timeout
        tries = 0
        while True:
            line = self._take(method, deadline)
            try:
                timeout_us = 0 if deadline is None else self._limit(line, method, deadline)
                frame = wire.encode(wire.CALL, 0, method, body, buffers, timeout_us)
                try:
                    unix.send_all(line.sock, frame)
                except OSError as error:
                    tries += not line.was_used
                    self._check_unsent(error, method, tries)
                    line.close()
                    continue
                reply = self._receive(line, method, deadline)
            except BaseException:  # a KeyboardInterrupt too: an answer may be on its way here
                line.close()
                raise
            self._give_back(line)
            try:
                return peer.open_reply(method, reply.kind, reply.body, reply.buffers)
            except NotRun:
                continue

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting. All such calls of a client share one connection."""
        pipeline = self._pipeline
        if pipeline is None:
            pipeline = self._open_pipeline()
        return pipeline.submit(method, args, kwargs)

    def close(self) -> None:
        """Closes what is open; a later call opens it again."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
        _close_all(self._idle)

    def _take(self, method: bytes, deadline: float | None) -> Line:
        try:
            return self._idle.pop()
        except IndexError:
            peer = self._peer
            sock = peer.wait_for(lambda left: open_socket(peer, left), method, deadline)
            return Line(sock)

    def _give_back(self, line: Line) -> None:
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(line)
        else:
            line.close()

    def _limit(self, line: Line, method: bytes, deadline: float) -> int:
        """Sets the kernel's timer; returns what the server shall know, in µs.

        A fresh call gets exactly the client's timeout, so that the timer need not be set again for
        every call.
        """
        peer = self._peer
        left = peer.time_left(method, deadline)
        assert left is not None and peer.call_timeout is not None
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

    def _receive(self, line: Line, method: bytes, deadline: float | None) -> wire.Frame:
        while True:
            try:
                return line.receive()
            except BlockingIOError:
                left = self._peer.time_left(method, deadline)
                line.limit(left or 0.0)
            except (OSError, ProtocolError) as error:
                raise self._peer.lost(method) from error

    def _open_pipeline(self) -> Pipeline:
        from launchpad.courier.pipeline import Pipeline

        pipeline = Pipeline(self._peer)
        self._pipeline = pipeline
        return pipeline


def _close_all(lines: deque[Line]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            lines.pop().close()


__all__ = ["DeadlineExceeded", "Line", "SocketChannel", "open_socket"]
