"""Ending the connections of one gloo group, from any thread, to free its waits when a rank has died.

In a collective operation of gloo, a thread waits in C++ for a message from one other rank. If a third rank
dies, neither of the two ranks notices. `abort()` and `shutdown()` of torch's group don't free the thread, and
the group cannot be deleted while the thread refers to it. But we can end the group's connections: gloo then
fails all waits on them at once, here and at the other end.

A connection that does not exist yet cannot be ended. The constructor of a gloo group connects the ranks: of
two ranks, one connects, and the other waits for the connection until its timeout, half an hour. If the first
rank dies before it connects, we connect instead, and end this connection.

gloo doesn't expose its descriptors. But each rank puts the address at which it listens into the store, as the
bytes of a `sockaddr`, and every connection of the group has one of these addresses at one of its ends. This
distinguishes the group's connections from all others, including those of other groups in this process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Collection
from typing import Any

_CONNECT_S = 1.0


def shut(published: Collection[bytes], size: int) -> None:
    """End each TCP connection of this process that has one of these addresses at one of its ends.

    Listening sockets stay open, because gloo does not expect them to end. A thread may be waiting for one of
    the `size` ranks to connect to such a socket. It gets a connection that ends at once instead.

    Args:
        published: Values of the store. They contain the addresses.
        size: The number of ranks.
    """

    def is_published(end: tuple[Any, ...]) -> bool:
        """Return True if the address of this end is in one of the values.

        On all systems, a `sockaddr` contains the port followed by the address. For IPv6, the flow is between
        them.
        """
        host, port = end[:2]
        if ":" in host:
            address = struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host)
        else:
            address = struct.pack("!H", port) + socket.inet_aton(host)
        return any(address in value for value in published)

    numbers: list[str] = []
    listening: list[tuple[Any, ...]] = []
    # Listing the descriptors needs one, and the process may have reached its limit.
    with contextlib.suppress(OSError):
        numbers = os.listdir("/dev/fd")
    for fd in map(int, numbers):
        # The descriptor may have been closed in the meantime, or may not be connected.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                # Another thread may close the descriptor, and open something else under its number. A copy
                # stays valid.
                with _copy_of(fd) as copy:
                    if copy.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    address = copy.getsockname()
                    if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        if is_published(address):
                            listening.append(address)
                    elif is_published(address) or is_published(copy.getpeername()):
                        # Don't use SHUT_RDWR. A send that begins before gloo's loop has seen the end would
                        # fail, and gloo does not wake a thread if a send fails. With SHUT_RD, the loop is
                        # always the first to see the end. It closes the connection, and the other rank
                        # notices.
                        copy.shutdown(socket.SHUT_RD)
    # Connect only after ending connections, because before that, few descriptors may be left.
    for host, port, *_ in listening:
        with contextlib.suppress(OSError):
            for rank in range(size):
                with socket.create_connection((host, port), _CONNECT_S) as connection:
                    # From these bytes, gloo reads which rank the connection belongs to.
                    connection.sendall(struct.pack("=q", rank))


def _copy_of(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        # The descriptor is not a socket any more.
        os.close(copy)
        raise
