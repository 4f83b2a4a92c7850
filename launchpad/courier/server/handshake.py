"""The server's side of the handshake, which decides which class then serves the connection."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from launchpad.courier import log
from launchpad.courier.protocol import handshake
from launchpad.courier.server.connection import ServerConnection
from launchpad.courier.server.pipelined_connection import PipelinedConnection
from launchpad.courier.server.serial_connection import SerialConnection, ShmServerConnection
from launchpad.courier.server.strangers import strangers
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket

if TYPE_CHECKING:
    from launchpad.courier.server.services import ServerServices

_HANDSHAKE_TIMEOUT_S = 5.0  # the server closes connections that have not sent a whole hello by then


class Handshake(ServerConnection):
    """A connection that reads the client's hello and answers it. It unpickles nothing, and can't block."""

    def __init__(self, sock: Socket, core: ServerServices) -> None:
        super().__init__(sock, core)
        self._data = bytearray()
        self.expires_at = time.monotonic() + _HANDSHAKE_TIMEOUT_S
        strangers.add(self)

    def close(self) -> None:
        strangers.discard(self)
        super().close()

    def drop(self) -> bool:
        """Close the connection. If a thread is serving it just now, return False instead. Thread-safe."""
        is_parked = self._core.poller.unpark(self)
        if is_parked:
            self.close()
        return is_parked

    def _serve(self) -> None:
        missing = handshake.CLIENT_HELLO_SIZE - len(self._data)
        try:
            chunk = self.sock.recv(missing, socket.MSG_DONTWAIT)
        except BlockingIOError:  # TLS has read a record that holds no data for the server
            self._core.poller.park(self)
            return
        self._data += chunk
        if not chunk:
            self.close()
        elif self._data.startswith(handshake.TLS_HELLO):
            log.debug("%s refuses a client: it begins with TLS", self._core.name)
            self.sock.sendall(handshake.NOT_TLS)
            self.close()
        elif (
            len(self._data) >= handshake.START_SIZE
            and handshake.read_version(self._data) != handshake.VERSION
        ):
            log.debug("%s refuses a client of another version", self._core.name)
            self._answer(handshake.BAD_VERSION)
            self.close()
        elif len(chunk) < missing:
            self._core.poller.park(self)
        else:
            self._accept(handshake.decode_client_hello(self._data))

    def _accept(self, hello: handshake.ClientHello) -> None:
        """Check the token, and hand the socket to a connection of the kind that the client requested."""
        import hmac

        core = self._core
        if core.is_closing:
            self.close()  # without an answer, so that the client treats the server as not up
        elif not (
            hmac.compare_digest(hello.token, core.token)
            or (core.trusts_this_user and stream_socket.is_unix(self.sock))
        ):
            log.debug("%s refuses %s: its token is wrong", core.name, hello.peer.name)
            self._answer(handshake.BAD_TOKEN)
            self.close()
        else:
            self._answer(handshake.ACCEPTED)
            core.connections.discard(self)
            strangers.discard(self)
            kind: type[SerialConnection | PipelinedConnection] = SerialConnection
            if hello.flags & handshake.OVERLAP:
                kind = PipelinedConnection
            elif hello.flags & handshake.SHARE and stream_socket.is_unix(self.sock):
                kind = ShmServerConnection
            log.debug("%s accepts a connection of %s", core.name, hello.peer.name)
            core.poller.park(kind(self.sock, core, hello))

    def _answer(self, status: int) -> None:
        core = self._core
        self.sock.sendall(
            handshake.encode_server_hello(status, core.incarnation, core.name, core.max_bytes)
        )
