"""A line that passes large buffers in shared memory, where both sides can."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.carriers.vigil import Vigil
from launchpad.courier.clients.line import Line
from launchpad.courier.clients.peer import Peer
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import wire
from launchpad.courier.sharing.parcel import Parcel
from launchpad.courier.sharing.socket import WINDOW_S, SharingSocket


class SharingLine(Line):
    """As any line, to who makes calls on it.

    A small call costs a little more on it, since each read asks for files, too.
    """

    shares_memory = True

    __slots__ = ("_call", "_parcel", "_peer", "_sharing")

    def __init__(
        self,
        sock: Socket,
        peer: Peer,
        is_stale: Callable[[Socket], bool] | None = None,
        address: str | None = None,
    ) -> None:
        self._sharing = SharingSocket(sock)
        super().__init__(self._sharing, peer.max_bytes, is_stale, address)
        self._receive = Vigil(self._sharing, WINDOW_S).receive
        self._peer = peer
        self._parcel: Parcel | None = None  # on its way
        self._call: tuple[bytes, bytes, Sequence[memoryview], int, bytes] | None = None  # its call

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        timeout_us: int,
        notes: bytes = b"",
    ) -> wire.Fields:
        if not buffers or (parcel := self._sharing.wrap(buffers)) is None:
            return super().exchange(method, body, buffers, timeout_us, notes)
        self._call = method, body, buffers, timeout_us, notes
        self._parcel = parcel
        notes += self._sharing.describe(parcel)
        return super().exchange(method, body, parcel.small, timeout_us, notes)

    def go_on(self) -> wire.Fields:
        reply = super().go_on()
        call, self._call = self._call, None
        if call is None or reply[0] != wire.NOT_RUN or reply[3] != wire.UNMAPPED:
            return reply
        self._sharing.is_refused = True
        return self.exchange(*call)

    def close(self) -> None:
        super().close()
        self._call = None
        self._release()

    def _send_rest(self) -> None:
        super()._send_rest()
        self._release()

    def _received(self, n: int) -> wire.Fields | None:
        frame = super()._received(n)
        if frame is None or not frame[6]:
            return frame
        try:
            return self._sharing.open(frame, self._peer.max_bytes)
        except (OSError, ProtocolError) as error:
            self._peer.shares_memory = False  # the next answer comes through the socket
            raise ConnectionAbortedError(f"the answer cannot be had: {error}") from error

    def _release(self) -> None:
        parcel, self._parcel = self._parcel, None
        if parcel is not None:
            parcel.release()
