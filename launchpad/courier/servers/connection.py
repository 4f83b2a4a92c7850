"""A socket that a server has accepted, whoever serves it.

    accepted ──▶ Greeter ──token and version fit──▶ Session   one call at a time (session.py)
                    │                          ├──▶ SharingSession   the same (sharing/session.py)
                    │                          └──▶ Overlap   many at a time (overlap.py)
                    └── otherwise: refused, closed

A thread that has served a call stays with the connection for a moment (`LINGER_S`), because a
caller that has called once is likely to call again: the next request then finds a thread already
reading, and costs no hop. When nothing comes, the connection is parked and the thread is free.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import TYPE_CHECKING

from launchpad.courier.carriers import sockets
from launchpad.courier.carriers.sockets import Socket
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import wire
from launchpad.courier.servers.pool import Job

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

LINGER_S = 0.05
_FAREWELL = wire.encode_small(wire.NOT_RUN, 0, b"", wire.STOPPING)


class Connection:
    """A socket that a server has accepted."""

    expires_at = float("inf")
    events = selectors.EVENT_READ  # that it is parked for
    is_waiting = False
    is_urgent = False
    caller = ""

    def __init__(self, sock: Socket, house: House) -> None:
        self.sock = sock
        self._house = house
        house.sessions.add(self)
        if house.is_closing:  # which hangs up all it knows of; it may not have known of this one
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

    def part(self) -> None:
        """Closes; if the server stops, with a last word: what is not answered by now has not run.

        Where a client may write to us after we have read for the last time (TCP), this is what
        tells it that the call was not made. To be used when nothing more will be answered.
        """
        if self._house.is_stopping:
            with contextlib.suppress(OSError):
                self.sock.send(_FAREWELL, sockets.NO_SIGNAL | socket.MSG_DONTWAIT)
        Connection.close(self)

    def hang_up(self) -> None:
        """Ends reading, from any thread: who reads sees the end, and closes in its own time."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """Ends reading and writing, from any thread."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """The server has stopped: closes what no thread will come to any more."""

    def _serve(self) -> None:
        raise NotImplementedError

    def _park(self) -> None:
        self._house.park(self)
