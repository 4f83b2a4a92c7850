"""Frees what waits in gloo when a rank has died: ends the connections of one group, from any thread.

A thread that waits for a collective operation of gloo waits in C++, for a message of one other rank. If a
third one has died, neither notices. `abort()` and `shutdown()` of torch's group free no thread, and the group
cannot be deleted while the thread refers to it. Its connections can be ended, however: gloo then fails
all that waits on them, here and at the other end, at once.

A connection that is not there yet cannot be ended. A group of gloo is connected in its constructor: of two
ranks one connects, and the other waits for that until its timeout, half an hour. If the first one has died
before, we connect in its place, and end that.

gloo keeps its descriptors to itself. Each rank puts the address where it listens into the store, as the bytes
of a `sockaddr`, and each of a group's connections has such an address at one of its ends. So those of a group
can be told from all others, those of other groups in this process as well.
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
    """Ends each TCP connection of this process with an end at an address that is in these values.

    Those that listen stay as they are: gloo does not expect them to end. What waits there for one of `size`
    ranks finds a connection that has ended.
    """

    def is_published(end: tuple[Any, ...]) -> bool:
        """Its port and address, for IPv6 with the flow between, lie in a `sockaddr` alike everywhere."""
        host, port = end[:2]
        if ":" in host:
            address = struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host)
        else:
            address = struct.pack("!H", port) + socket.inet_aton(host)
        return any(address in value for value in published)

    numbers: list[str] = []
    listening: list[tuple[Any, ...]] = []
    with contextlib.suppress(OSError):  # there may be no number left to list them by
        numbers = os.listdir("/dev/fd")
    for fd in map(int, numbers):
        with contextlib.suppress(OSError):  # it has been closed meanwhile, or is not connected
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                # Another thread may open something else under its number; a copy stays what it is.
                with _copy_of(fd) as copy:
                    if copy.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    here = copy.getsockname()
                    if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        listening += [here] * is_published(here)
                    elif is_published(here) or is_published(copy.getpeername()):
                        # Not SHUT_RDWR: a send that begins before gloo's loop has seen the end would fail,
                        # and gloo wakes no thread for that. So its loop is always the first to see it, and
                        # closes the connection, which the other end sees.
                        copy.shutdown(socket.SHUT_RD)
    for host, port, *_ in listening:  # now that connections end: there may be few descriptors
        with contextlib.suppress(OSError):
            for rank in range(size):
                with socket.create_connection((host, port), _CONNECT_S) as connection:
                    connection.sendall(struct.pack("=q", rank))  # whose connection it is, to gloo


def _copy_of(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # it is no socket any more
        os.close(copy)
        raise
