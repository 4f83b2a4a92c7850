"""A limit on the number of connections in a process that have shown no token yet.

Anybody who reaches a port can connect to it and then say nothing. Such connections are called strangers
here. Each takes a descriptor, and a process often has only 1,024 descriptors for all that it does. So all
servers of a process together keep a limited number of strangers. When more come, the servers drop the oldest,
as OpenSSH does (`MaxStartups`). They drop a client of the program only if it has been silent for longer than
a handshake takes. Until then, new connections wait in the system's backlog. Strangers never keep the last few
descriptors, however few strangers there are.
"""

from __future__ import annotations

import resource
import time
from typing import Protocol

from launchpad.courier import fork
from launchpad.courier.transport.stream_socket import Socket

# The limit on strangers is between these numbers, whatever the limit on open files.
_FEWEST = 8
_MOST = 512
_GRACE_S = 0.1  # each stranger has this time, even if others wait
_MOST_RESERVED = 16
_MANY = 1 << 20


class Stranger(Protocol):
    """A connection that has shown no token: a Handshake."""

    def drop(self) -> bool:
        """Close the connection. If a thread is serving it just now, return False instead. Thread-safe."""
        ...


class Strangers:
    """The connections of this process that have shown no token. Thread-safe."""

    def __init__(self) -> None:
        # The time at which each connection was accepted, the oldest first. This needs no lock: each change is
        # one operation of the dict, and only one thread gets a connection out of its poller.
        self._since: dict[Stranger, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Stranger) -> None:
        self._since[connection] = time.monotonic()

    def discard(self, connection: Stranger) -> None:
        """Stop counting a connection, because it has shown its token or is closed."""
        self._since.pop(connection, None)

    def make_room(self) -> bool:
        """Make room for one more connection. If there are too many, drop the oldest.

        Return False if there is no room, because all are too young, or threads are serving the older ones.
        """
        return len(self._since) < at_most() or self.drop_oldest(_GRACE_S)

    def takes_reserve(self, sock: Socket) -> bool:
        """Return True if a new socket has one of the last descriptors, which are not for strangers."""
        descriptors = _number_of_descriptors()
        return sock.fileno() >= descriptors - min(_MOST_RESERVED, descriptors // 8)

    def drop_oldest(self, min_age_s: float = 0.0) -> bool:
        """Close the oldest connection that no thread is just serving.

        Return False if no connection can be closed, or the oldest is younger than `min_age_s`.
        """
        accepted_before = time.monotonic() - min_age_s
        for connection, since in tuple(self._since.items()):
            if since > accepted_before:
                return False
            if connection.drop():
                return True
        return False

    def drop_inherited(self) -> None:
        """Forget all connections in a forked child, where the servers have closed them."""
        self._since.clear()


def _number_of_descriptors() -> int:
    """Return the number of descriptors that this process may have open."""
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MANY if soft_limit == resource.RLIM_INFINITY else soft_limit


def at_most() -> int:
    """Return the limit on strangers: a quarter of what this process may open, from 8 to 512."""
    return max(_FEWEST, min(_MOST, _number_of_descriptors() // 4))


# One per process, because the limit on open files is per process.
strangers = Strangers()
fork.drop_in_child(strangers)
