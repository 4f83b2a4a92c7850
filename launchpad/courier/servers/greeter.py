"""A connection that has yet to say who it is, and what it becomes when it has."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.protocol import greeting
from launchpad.courier.servers.connection import Connection
from launchpad.courier.servers.session import Session

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

_GREETING_S = 5.0  # a connection that has not said who it is by then is closed


class Greeter(Connection):
    """Reads who is there. Nothing of it is unpickled, and it can't block."""

    def __init__(self, sock: Socket, house: House) -> None:
        super().__init__(sock, house)
        self._data = bytearray()
        self.expires_at = time.monotonic() + _GREETING_S

    def _serve(self) -> None:
        missing = greeting.GREETING_SIZE - len(self._data)
        try:
            chunk = self.sock.recv(missing, socket.MSG_DONTWAIT)
        except BlockingIOError:  # a carrier has read something that was not for us
            self._park()
            return
        self._data += chunk
        if not chunk:
            self.close()
        elif self._data.startswith(greeting.TLS_HELLO):
            self.sock.sendall(greeting.NOT_TLS)
            self.close()
        elif self._speaks_another_version():
            self._answer(greeting.BAD_VERSION)
            self.close()
        elif len(chunk) < missing:
            self._park()
        else:
            self._decide(greeting.decode_greeting(self._data))

    def _speaks_another_version(self) -> bool:
        if len(self._data) < greeting.START_SIZE:
            return False
        return greeting.read_version(self._data) != greeting.VERSION

    def _decide(self, said: greeting.Greeting) -> None:
        if self._house.is_closing:
            self.close()  # without a word: for the client, no server is up
            return
        verdict = self._judge(said)
        self._answer(verdict)
        if verdict != greeting.WELCOME:
            self.close()
            return
        self._house.sessions.discard(self)
        _kind_for(self.sock, said.flags)(self.sock, self._house, said)._park()

    def _answer(self, verdict: int) -> None:
        house = self._house
        self.sock.sendall(
            greeting.encode_welcome(verdict, house.incarnation, house.name, house.max_bytes)
        )

    def _judge(self, said: greeting.Greeting) -> int:
        import hmac

        if hmac.compare_digest(said.token, self._house.token):
            return greeting.WELCOME
        return greeting.BAD_TOKEN


def _kind_for(sock: Socket, flags: int) -> Callable[[Socket, House, greeting.Greeting], Connection]:
    """What serves a connection. Some need modules that take a while to import."""
    if flags & greeting.OVERLAP:
        from launchpad.courier.servers.overlap import Overlap

        return Overlap
    if flags & greeting.SHARE and sockets.is_unix(sock):
        from launchpad.courier.sharing.session import SharingSession

        return SharingSession
    return Session
