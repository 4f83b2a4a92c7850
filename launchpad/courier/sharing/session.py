"""A session whose client can share memory: large buffers past the socket, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.carriers.vigil import Vigil
from launchpad.courier.protocol import wire
from launchpad.courier.protocol.greeting import Greeting
from launchpad.courier.servers.session import Session
from launchpad.courier.sharing.socket import WINDOW_S, SharingSocket, refusal

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House


class SharingSession(Session):
    """As any session. Its client has opened it for large calls."""

    def __init__(self, sock: Socket, house: House, said: Greeting) -> None:
        self._sharing = SharingSocket(sock)
        super().__init__(self._sharing, house, said)
        self._vigil = Vigil(self._sharing, WINDOW_S)

    def _received(self, n: int) -> list[wire.Fields]:
        """Calls with all their buffers. One whose buffers cannot be had is answered here."""
        frames = []
        for frame in super()._received(n):
            try:
                frames.append(self._sharing.open(frame, self._house.max_bytes))
            except OSError:
                sockets.send_all(self.sock, refusal(frame))
        return frames

    def _write(
        self, kind: int, call_id: int, body: bytes, views: list[memoryview], said: bytes
    ) -> None:
        parcel = self._sharing.wrap(views)
        if parcel is None:
            super()._write(kind, call_id, body, views, said)
            return
        try:
            views.clear()  # before the caller has the answer: an argument may die with them
            said += self._sharing.describe(parcel)
            super()._write(kind, call_id, body, parcel.small, said)
        finally:
            parcel.release()
