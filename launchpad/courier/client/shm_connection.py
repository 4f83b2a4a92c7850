"""A connection that passes large buffers through shared memory, if client and server can do that."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from launchpad.courier.client.connection import ClientConnection
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.shm.sender import SharedBuffers
from launchpad.courier.shm.socket import WINDOW_S, ShmSocket
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.spin_wait import SpinWaiter
from launchpad.courier.transport.stream_socket import DONTWAIT, SEND_NOW


class ShmRequest(NamedTuple):
    """The content of a call, kept until it is answered."""

    body: bytes
    shared: SharedBuffers | None  # None if only the method's last result was large, no argument
    small: list[memoryview]  # the other buffers
    headers: bytes
    spare: list[memoryview] | None  # a copy of all buffers, if the call may run twice


class ShmClientConnection(ClientConnection):
    """A connection that shares memory. Small calls take a little longer, because each read asks for files."""

    shares_memory = True

    def __init__(
        self,
        sock: stream_socket.Socket,
        peer: ServerInfo,
        is_stale: Callable[[stream_socket.Socket], bool] | None,
        address: str,
    ) -> None:
        self._shm = ShmSocket(sock)
        super().__init__(self._shm, peer.max_bytes, is_stale, address)
        self._receive = SpinWaiter(self._shm, WINDOW_S).receive
        self._received_alone = partial(self._shm.open_alone, self._decoder, peer.max_bytes)
        self._peer = peer
        self._shared: SharedBuffers | None = None  # in flight
        # The call that `_shared` belongs to. If the server refuses the memory, the call is sent again through
        # the socket.
        self._call: tuple[bytes, bytes, Sequence[memoryview], int, bytes] | None = None

    def exchange(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[memoryview],
        timeout_us: int,
        header_data: bytes = b"",
    ) -> framing.Fields:
        shared = self._shm.wrap(buffers) if buffers else None
        if shared is None:
            return super().exchange(method, body, buffers, timeout_us, header_data)
        self._call = method, body, buffers, timeout_us, header_data
        self._shared = shared
        header_data += self._shm.describe(shared)
        return super().exchange(method, body, shared.small, timeout_us, header_data)

    @property
    def is_refused(self) -> bool:
        """True if the server cannot map this client's segments."""
        return self._shm.is_refused

    @is_refused.setter
    def is_refused(self, value: bool) -> None:
        self._shm.is_refused = value

    def begin(self, call_id: int, method: bytes, request: ShmRequest, timeout_us: int) -> None:
        """Write a call without waiting. If this raises OSError, the call will not run."""
        self.is_sent = False
        headers = request.headers
        if request.shared is not None:
            headers += self._shm.describe(request.shared)
        chunks = framing.encode(
            framing.CALL, call_id, method, request.body, request.small, timeout_us, headers
        )
        n = self.sock.sendmsg(chunks, (), SEND_NOW)
        if n < sum(map(len, chunks)):
            raise BlockingIOError("the server does not take the call at once")
        self.is_sent = True

    def cancel(self, call_id: int) -> None:
        """End the connection. If the server has not begun the call, it never does."""
        frame = framing.encode_small(framing.CANCEL, call_id, b"", b"")
        with contextlib.suppress(OSError):
            self.sock.send(frame, SEND_NOW)
            self.sock.shutdown(socket.SHUT_RDWR)

    def try_receive(self) -> framing.Fields | None:
        """Return the next frame if all of it has arrived, else None. Raises OSError."""
        try:
            n = self.sock.recv_into(self._decoder.buffer, 0, DONTWAIT)
        except BlockingIOError:
            return None
        return self._received(n)

    def resume(self) -> framing.Fields:
        if not self.is_sent:
            stream_socket.send_rest(self.sock, self._unsent)
            self._release()
            self.is_sent = True
        reply = self.receive()
        call = self._call
        self._call = None
        if call is None or reply[0] != framing.NOT_RUN or reply[3] != framing.UNMAPPED:
            return reply
        self._shm.is_refused = True
        return self.exchange(*call)

    def close(self) -> None:
        super().close()
        self._call = None
        self._release()

    def _received(self, n: int) -> framing.Fields | None:
        frame = super()._received(n)
        if frame is None or not frame[6]:
            return frame
        try:
            return self._shm.open(frame, self._peer.max_bytes)
        except (OSError, ProtocolError) as error:
            self._peer.shares_memory = False  # so the next answer comes through the socket
            raise ConnectionAbortedError(f"the answer cannot be had: {error}") from error

    def _release(self) -> None:
        shared = self._shared
        self._shared = None
        if shared is not None:
            shared.release()
