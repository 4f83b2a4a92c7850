"""Ending the connections of one gloo group, from any thread, to free its waits when a rank has died.

A thread in a collective operation of gloo waits in C++, for a message from one other rank. If a third rank
dies, neither of them notices. `abort()` and `shutdown()` of torch's group free no thread, and the group
cannot be deleted while the thread refers to it. But we can end its connections: gloo then fails all waits on
them at once, here and at the other end.

A connection that does not exist yet cannot be ended. A gloo group is connected in its constructor: of two
ranks, one connects, and the other waits for that until its timeout, half an hour. If the first one has died
before it connected, we connect instead, and end that connection.

gloo doesn't expose its descriptors. Each rank puts the address at which it listens into the store, as the
bytes of a `sockaddr`, and every connection of the group has such an address at one of its ends. This
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
    """End each TCP connection of this process that has one end at an address in these values.

    Listening sockets stay open, because gloo does not expect them to end. A thread may wait there until one
    of the `size` ranks connects. It gets a connection that has ended instead.
    """

    def is_published(end: tuple[Any, ...]) -> bool:
        """Return True if the address of this end is in one of the values.

        On all systems, a `sockaddr` contains port and address like this, for IPv6 with the flow in between.
        """
        host, port = end[:2]
        if ":" in host:
            address = struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host)
        else:
            address = struct.pack("!H", port) + socket.inet_aton(host)
        return any(address in value for value in published)

    numbers: list[str] = []
    listening: list[tuple[Any, ...]] = []
    # Listing them needs a descriptor, and there may be none left.
    with contextlib.suppress(OSError):
        numbers = os.listdir("/dev/fd")
    for fd in map(int, numbers):
        # The descriptor may have been closed since, or it is not connected.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                # Another thread may close it and open something else under its number. A copy stays valid.
                with _copy_of(fd) as copy:
                    if copy.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    address = copy.getsockname()
                    if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        if is_published(address):
                            listening.append(address)
                    elif is_published(address) or is_published(copy.getpeername()):
                        # Not SHUT_RDWR: a send that begins before gloo's loop has seen the end would fail,
                        # and gloo wakes no thread for that. With SHUT_RD, the loop is always the first to see
                        # the end. It closes the connection, and the other rank notices.
                        copy.shutdown(socket.SHUT_RD)
    # Connect only now that connections have ended, because there may be few descriptors left.
    for host, port, *_ in listening:
        with contextlib.suppress(OSError):
            for rank in range(size):
                with socket.create_connection((host, port), _CONNECT_S) as connection:
                    # gloo reads from this which rank the connection belongs to.
                    connection.sendall(struct.pack("=q", rank))


def _copy_of(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        # It is not a socket any more.
        os.close(copy)
        raise
