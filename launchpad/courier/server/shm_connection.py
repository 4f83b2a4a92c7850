"""A serial connection whose client can share memory: large buffers past the socket, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launchpad.courier.protocol import framing
from launchpad.courier.protocol.handshake import ClientHello
from launchpad.courier.server.serial_connection import SerialConnection
from launchpad.courier.shm.socket import WINDOW_S, ShmSocket, refusal
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import Socket

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore


class ShmServerConnection(SerialConnection):
    """A serial connection that its client has opened for large calls."""

    def __init__(self, sock: Socket, core: ServerCore, hello: ClientHello) -> None:
        self._shm = ShmSocket(sock)
        super().__init__(self._shm, core, hello)
        self._spin = SpinWaiter(self._shm, WINDOW_S)

    def _received(self, n: int) -> list[framing.Fields]:
        """Calls with all their buffers. One whose buffers cannot be had is answered here."""
        frames = []
        for frame in super()._received(n):
            try:
                frames.append(self._shm.open(frame, self._core.max_bytes))
            except OSError:
                stream_socket.send_all(self.sock, refusal(frame))
        return frames

    def _write(
        self, kind: int, call_id: int, body: bytes, views: list[memoryview], header_data: bytes
    ) -> None:
        shared = self._shm.wrap(views)
        if shared is None:
            super()._write(kind, call_id, body, views, header_data)
            return
        try:
            views.clear()  # before the caller has the answer: an argument may die with them
            header_data += self._shm.describe(shared)
            super()._write(kind, call_id, body, shared.small, header_data)
        finally:
            shared.release()
