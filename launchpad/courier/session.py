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

from launchpad.courier import greeting, wire
from launchpad.courier.carriers import unix
from launchpad.courier.errors import ProtocolError
from launchpad.courier.pool import Job

if TYPE_CHECKING:
    from launchpad.courier.house import House

LINGER_S = 0.05
_GREETING_S = 5.0  # a connection that has not said who it is by then is closed

_NO_BUFFERS: list[memoryview] = []


class Connection:
    """A socket that a server has accepted."""

    expires_at = float("inf")
    is_waiting = False

    def __init__(self, sock: socket.socket, house: House) -> None:
        self.sock = sock
        self._house = house
        house.sessions.add(self)
        if house.is_stopping:  # which hangs up all it knows of; it may not have known of this one
            self.hang_up()

    def take_job(self) -> Job:
        return self

    def run(self) -> None:
        """Serves what has arrived; then parks or closes."""
        try:
            self._serve()
        except (OSError, ProtocolError):
            self.close()
        except BaseException:
            self.close()
            raise

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
        missing = greeting.GREETING_SIZE - len(self._data)
        chunk = self.sock.recv(missing, socket.MSG_DONTWAIT)
        self._data += chunk
        if not chunk:
            self.close()
        elif len(chunk) < missing:
            self._park()
        else:
            self._decide(greeting.decode_greeting(self._data))

    def _decide(self, said: greeting.Greeting) -> None:
        if self._house.is_stopping:
            self.close()  # without a word: for the client, no server is up
            return
        verdict = self._judge(said)
        house = self._house
        self.sock.sendall(greeting.encode_welcome(verdict, house.incarnation, house.name))
        if verdict != greeting.WELCOME:
            self.close()
            return
        from launchpad.courier.overlap import Overlap

        kind = Overlap if said.flags & greeting.OVERLAP else Session
        house.sessions.discard(self)
        kind(self.sock, house)._park()

    def _judge(self, said: greeting.Greeting) -> int:
        import hmac

        if not hmac.compare_digest(said.token, self._house.token):
            return greeting.BAD_TOKEN
        return greeting.WELCOME if said.version == greeting.VERSION else greeting.BAD_VERSION


class Session(Connection):
    """A connection whose client makes one call at a time and waits for the answer."""

    def __init__(self, sock: socket.socket, house: House) -> None:
        super().__init__(sock, house)
        self._decoder = wire.Decoder(max_bytes=house.max_bytes)
        self._send = sock.send
        self._answer_call = house.methods.answer
        self._noticed_at = 0.0
        unix.set_receive_timeout(sock, LINGER_S)

    def take_job(self) -> Job:
        self._noticed_at = time.monotonic()  # from here on the call may wait for a thread
        return self

    def _serve(self) -> None:
        recv_into, decoder, pool = self.sock.recv_into, self._decoder, self._house.pool
        while True:
            self.is_waiting = True
            try:
                n = recv_into(decoder.buffer)
            except BlockingIOError:
                break
            finally:
                self.is_waiting = False
            if not n:
                self.close()
                return
            frame = decoder.received_alone(n)
            for each in decoder.received(n) if frame is None else (frame,):
                if each[0] == wire.CALL:
                    self._answer(each)
            self._noticed_at = 0.0
            if not pool.may_linger:
                break
        self._park()

    def _is_late(self, timeout_us: int) -> bool:
        waited_s = time.monotonic() - self._noticed_at if self._noticed_at else 0.0
        return waited_s * 1e6 > timeout_us

    def _answer(self, frame: wire.Fields) -> None:
        _, call_id, method, body, buffers, timeout_us = frame
        if self._house.is_stopping:
            kind, result, views = wire.NOT_RUN, wire.STOPPING, _NO_BUFFERS
        elif timeout_us and self._is_late(timeout_us):
            kind, result, views = wire.NOT_RUN, wire.LATE, _NO_BUFFERS
        else:
            kind, result, views = self._answer_call(method, body, buffers)
        if views or len(result) > wire.SMALL:
            unix.send_all(self.sock, wire.encode(kind, call_id, b"", result, views))
            return
        reply = wire.encode_small(kind, call_id, b"", result)
        if (n := self._send(reply, unix.NO_SIGNAL)) != len(reply):
            unix.send_all(self.sock, [reply[n:]])
