"""The server's end of a connection: greeted first, then served.

    accepted ──▶ Greeter ──token and version fit──▶ Session   one call at a time
                    │                          └──▶ Overlap   many at a time (overlap.py)
                    └── otherwise: refused, closed

A thread that has served a call stays with the connection for a moment (`LINGER_S`), because a
caller that has called once is likely to call again: the next request then finds a thread already
reading, and costs no hop. When nothing comes, the connection is parked and the thread is free.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from launchpad.courier import wire
from launchpad.courier.carriers import unix
from launchpad.courier.errors import ProtocolError
from launchpad.courier.pool import Job

if TYPE_CHECKING:
    from launchpad.courier.house import House

LINGER_S = 0.05
_GREETING_S = 5.0  # a connection that has not said who it is by then is closed


class Connection:
    """A socket that a server has accepted."""

    expires_at = float("inf")
    is_waiting = False

    def __init__(self, sock: socket.socket, house: House) -> None:
        self.sock = sock
        self._house = house
        house.sessions.add(self)

    def take_job(self) -> Job:
        return self

    def run(self) -> None:
        """Serves what has arrived; then parks or closes."""
        try:
            self._serve()
        except (OSError, ProtocolError):
            self.close()

    def close(self) -> None:
        self._house.sessions.discard(self)
        self.sock.close()

    def hang_up(self) -> None:
        """Ends reading, from any thread: who reads sees the end, and closes in its own time."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """Ends reading and writing, from any thread."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        raise NotImplementedError

    def _park(self) -> None:
        self._house.park(self)


class Greeter(Connection):
    """A connection that has yet to say who it is. Nothing of it is unpickled, and it can't block."""

    def __init__(self, sock: socket.socket, house: House) -> None:
        super().__init__(sock, house)
        self._data = bytearray()
        self.expires_at = time.monotonic() + _GREETING_S

    def _serve(self) -> None:
        missing = wire.GREETING_SIZE - len(self._data)
        chunk = self.sock.recv(missing, socket.MSG_DONTWAIT)
        self._data += chunk
        if not chunk:
            self.close()
        elif len(chunk) < missing:
            self._park()
        else:
            self._decide(wire.decode_greeting(self._data))

    def _decide(self, greeting: wire.Greeting) -> None:
        verdict = self._judge(greeting)
        house = self._house
        self.sock.sendall(wire.encode_welcome(verdict, house.incarnation, house.name))
        if verdict != wire.WELCOME:
            self.close()
            return
        from launchpad.courier.overlap import Overlap

        kind = Overlap if greeting.flags & wire.OVERLAP else Session
        house.sessions.discard(self)
        kind(self.sock, house)._park()

    def _judge(self, greeting: wire.Greeting) -> int:
        import hmac

        if not hmac.compare_digest(greeting.token, self._house.token):
            return wire.BAD_TOKEN
        return wire.WELCOME if greeting.version == wire.VERSION else wire.BAD_VERSION


class Session(Connection):
    """A connection whose client makes one call at a time and waits for the answer."""

    def __init__(self, sock: socket.socket, house: House) -> None:
        super().__init__(sock, house)
        self._decoder = wire.Decoder(max_bytes=house.max_bytes)
        self._noticed_at = 0.0
        unix.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        self._noticed_at = time.monotonic()  # from here on the call may wait for a thread
        return self

    def _serve(self) -> None:
        while self._exchange():
            if not self._house.may_linger:
                self._park()
                return

    def _exchange(self) -> bool:
        """Reads once and answers; False when the connection was parked or closed."""
        try:
            self.is_waiting = True
            n = self.sock.recv_into(self._decoder.get_buffer())
        except BlockingIOError:
            self._park()
            return False
        finally:
            self.is_waiting = False
        if not n:
            self.close()
            return False
        for frame in self._decoder.received(n):
            if frame.kind == wire.CALL:
                self._answer(frame)
        self._noticed_at = 0.0
        return True

    def _is_late(self, timeout_us: int) -> bool:
        waited_s = time.monotonic() - self._noticed_at if self._noticed_at else 0.0
        return waited_s * 1e6 > timeout_us

    def _answer(self, frame: wire.Frame) -> None:
        _, call_id, method, body, buffers, timeout_us = frame
        if self._house.is_stopping:
            reply = wire.encode(wire.NOT_RUN, call_id, b"", wire.STOPPING)
        elif timeout_us and self._is_late(timeout_us):
            reply = wire.encode(wire.NOT_RUN, call_id, b"", wire.LATE)
        else:
            kind, body, buffers = self._house.methods.answer(method, body, buffers)
            reply = wire.encode(kind, call_id, b"", body, buffers)
        unix.send_all(self.sock, reply)
