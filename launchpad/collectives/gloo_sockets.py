"""Frees what waits in gloo when a rank has died: ends the connections of one group, from any thread.

A thread that waits for a collective operation of gloo waits in C++, for a message of one other rank. If a
third one has died, neither notices. `abort()` and `shutdown()` of torch's group free no thread, and the group
cannot be deleted while the thread refers to it. Its connections can be ended, however: gloo then fails
all that waits on them, here and at the other end, at once.

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


def shut(published: Collection[bytes]) -> None:
    """Ends each TCP connection of this process with an end at an address that is in these values.

    Those that listen stay as they are: gloo does not expect them to end.
    """
    numbers: list[str] = []
    with contextlib.suppress(OSError):  # there may be no number left to list them by
        numbers = os.listdir("/dev/fd")
    for fd in map(int, numbers):
        with contextlib.suppress(OSError):  # it has been closed meanwhile, or is not connected
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                # Another thread may open something else under its number; a copy stays what it is.
                with _copy_of(fd) as copy:
                    ends = (copy.getsockname(), copy.getpeername())
                    is_tcp = copy.family in (socket.AF_INET, socket.AF_INET6)
                    if is_tcp and any(
                        _address(end) in value for end in ends for value in published
                    ):
                        # Not SHUT_RDWR: a send that begins before gloo's loop has seen the end would fail,
                        # and gloo wakes no thread for that. So its loop is always the first to see it, and
                        # closes the connection, which the other end sees.
                        copy.shutdown(socket.SHUT_RD)


def _copy_of(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # it is no socket any more
        os.close(copy)
        raise


def _address(end: tuple[str, int] | tuple[str, int, int, int]) -> bytes:
    """What of a `sockaddr` lies in memory alike everywhere: port and address, for IPv6 the flow between."""
    host, port = end[:2]
    if ":" in host:
        return struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("!H", port) + socket.inet_aton(host)
