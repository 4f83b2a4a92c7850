"""A socket that a server has accepted, whatever serves it.

    accepted ──▶ Handshake ──token and version fit──▶ SerialConnection      one call at a time
                    │                          ├──▶ ShmServerConnection   the same, large buffers shared
                    │                          └──▶ PipelinedConnection   many at a time
                    └── otherwise: refused, closed

A thread that has served a call stays with the connection for a moment (`LINGER_S`), because a
caller that has called once is likely to call again: the next request then finds a thread already
reading, and costs no hop. When nothing comes, the connection is parked and the thread is free.
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
    """A socket that a server has accepted."""

    expires_at = float("inf")
    call_id = 0
    events = selectors.EVENT_READ  # for which it is parked

    def __init__(self, sock: Socket, core: ServerServices, peer: Peer = _UNKNOWN) -> None:
        self.sock = sock
        self.peer = peer
        self._core = core
        core.connections.add(self)
        if core.is_closing:  # its `close` may have hung up the others before this one was added
            self.hang_up()

    def is_gone(self, call_id: int = 0) -> bool:
        """Whether its client has closed it, or has died. From any thread; while a method runs, say."""
        poll = select.poll()
        try:
            poll.register(stream_socket.raw_of(self.sock), _HAS_ENDED)
        except (OSError, ValueError):  # it is closed here, too
            return True
        return bool(poll.poll(0))

    def take_job(self) -> Job:
        return self

    def run(self) -> None:
        """Serves what has arrived; then parks or closes."""
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
        """Closes; if the server stops, sends GOAWAY first: what is not answered by now has not run.

        Where a client may write to us after we have read for the last time (TCP), this frame shows
        it that the call was not made. To be used when nothing more will be answered.
        """
        if self._core.is_stopping:
            with contextlib.suppress(OSError):
                self.sock.send(_GOAWAY, stream_socket.NO_SIGNAL | socket.MSG_DONTWAIT)
        ServerConnection.close(self)

    def hang_up(self) -> None:
        """Ends reading, from any thread: one that reads sees the end, and closes in its own time."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """Ends reading and writing, from any thread."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """The server has stopped: closes what no thread will serve any more."""

    def _serve(self) -> None:
        raise NotImplementedError
