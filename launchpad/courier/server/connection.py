"""The connections that a server has accepted, and the classes that serve them.

    accepted ──▶ Handshake ──token and version fit──▶ SerialConnection      one call at a time
                    │                          ├──▶ ShmServerConnection   the same, large buffers shared
                    │                          └──▶ PipelinedConnection   many at a time
                    └── otherwise: refused, closed

A thread that has served a call stays with the connection for a moment (`LINGER_S`), because a
caller that has called once is likely to call again. The next request then finds a thread that is
already reading, so no other thread has to be woken. If nothing comes, the thread parks the connection
and is free.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
from typing import TYPE_CHECKING

from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.server.thread_pool import Job
from launchpad.courier.transport import stream_socket
from launchpad.courier.transport.stream_socket import Socket

if TYPE_CHECKING:
    from launchpad.courier.server.services import ServerServices

LINGER_S = 0.05
_UNKNOWN = Peer("")
_HAS_ENDED = getattr(select, "POLLRDHUP", select.POLLHUP)
_GOAWAY = framing.encode_small(framing.NOT_RUN, 0, b"", framing.STOPPING)


class ServerConnection(Job):
    """A connection that a server has accepted, as a job that serves what has arrived."""

    expires_at = float("inf")
    call_id = 0
    events = selectors.EVENT_READ  # what the poller waits for while the connection is parked

    def __init__(self, sock: Socket, core: ServerServices, peer: Peer = _UNKNOWN) -> None:
        self.sock = sock
        self.peer = peer
        self._core = core
        core.connections.add(self)
        # `core.close` may have hung up all connections just before this one was added.
        if core.is_closing:
            self.hang_up()

    def is_gone(self, call_id: int = 0) -> bool:
        """Return True if the client closed the connection or died. Safe from any thread."""
        poll = select.poll()
        try:
            poll.register(stream_socket.raw_of(self.sock), _HAS_ENDED)
        except (OSError, ValueError):  # this side has closed it
            return True
        return bool(poll.poll(0))

    def take_job(self) -> Job:
        return self

    def run(self) -> None:
        """Serve what has arrived, then park the connection or close it."""
        token = caller.current.set(self)
        try:
            self._serve()
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError | ProtocolError):
                raise
        finally:
            caller.current.reset(token)

    def close(self) -> None:
        self._core.connections.discard(self)
        self.sock.close()

    def part(self) -> None:
        """Close the connection. If the server is stopping, first send the client a GOAWAY.

        Call this when the server will answer nothing more. A TCP client may have written a call after the
        server's last read. The GOAWAY says that calls without an answer have not run.
        """
        if self._core.is_stopping:
            with contextlib.suppress(OSError):
                self.sock.send(_GOAWAY, stream_socket.NO_SIGNAL | socket.MSG_DONTWAIT)
        ServerConnection.close(self)

    def hang_up(self) -> None:
        """End reading. The thread that reads then closes the connection. Safe from any thread."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End reading and writing. Safe from any thread."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close the connection after the server has stopped, if no thread will serve it again."""

    def _serve(self) -> None:
        raise NotImplementedError
