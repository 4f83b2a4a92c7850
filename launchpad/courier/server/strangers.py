"""Connections that have shown no token yet: how many of them a process keeps.

Anybody who reaches a port can connect to it and then say nothing. Each such connection takes a descriptor,
and a process often has 1,024 of them for all that it does. So all servers of a process together keep a
limited number, and drop the oldest when more come, as OpenSSH does (`MaxStartups`). A client of the program
is dropped only if it has been silent for longer than a handshake takes; until then, new connections wait in
the system's backlog. The last few descriptors are never left to strangers, however many they are.
"""

from __future__ import annotations

import resource
import time
from typing import Protocol

from launchpad.courier import fork
from launchpad.courier.transport.stream_socket import Socket

# At once, whatever the limit on open files.
_FEWEST = 8
_MOST = 512
_GRACE_S = 0.1  # which each has, even if others wait
_MOST_RESERVED = 16
_MANY = 1 << 20


class Stranger(Protocol):
    """A connection that has shown no token: a Handshake."""

    def drop(self) -> bool:
        """Close it, from any thread; False if a thread serves it just now."""
        ...


class Strangers:
    """The connections of this process that have shown no token. All methods may be called from any thread."""

    def __init__(self) -> None:
        # Connection → when it was accepted, the oldest first. There is no lock: each step is one operation of
        # the dict, and only one thread gets a connection out of its poller.
        self._since: dict[Stranger, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Stranger) -> None:
        self._since[connection] = time.monotonic()

    def discard(self, connection: Stranger) -> None:
        """It has shown its token, or is closed."""
        self._since.pop(connection, None)

    def make_room(self) -> bool:
        """Drops the oldest one if there are too many; False if that is too young, or has a thread."""
        return len(self._since) < at_most() or self.drop_oldest(_GRACE_S)

    def takes_reserve(self, sock: Socket) -> bool:
        """True if a new socket has one of the last descriptors, which are not for strangers."""
        descriptors = _number_of_descriptors()
        return sock.fileno() >= descriptors - min(_MOST_RESERVED, descriptors // 8)

    def drop_oldest(self, min_age_s: float = 0.0) -> bool:
        """Closes the one that has been here longest; False if there is none as old, or all have a thread."""
        accepted_before = time.monotonic() - min_age_s
        for connection, since in tuple(self._since.items()):
            if since > accepted_before:
                return False
            if connection.drop():
                return True
        return False

    def drop_inherited(self) -> None:
        """For a forked child, in which the servers have closed them."""
        self._since.clear()


def _number_of_descriptors() -> int:
    """Return the number of descriptors that this process may have now."""
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MANY if soft_limit == resource.RLIM_INFINITY else soft_limit


def at_most() -> int:
    """Return the largest number of strangers: a quarter of what this process may open."""
    return max(_FEWEST, min(_MOST, _number_of_descriptors() // 4))


# One per process by nature: the limit on open files is.
strangers = Strangers()
fork.drop_in_child(strangers)
