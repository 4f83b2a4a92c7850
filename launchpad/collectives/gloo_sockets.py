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
import struct
from collections.abc import Collection


def shut(published: Collection[bytes]) -> int:
    """Ends each TCP connection of this process with an end at an address that is in these values.

    Those that listen stay as they are: gloo does not expect them to end.

    Returns:
        How many.
    """
    return sum(_shut_if_published(fd, published) for fd in _descriptors())


def _descriptors() -> list[int]:
    """This process's descriptors, on Linux and macOS."""
    return [int(name) for name in os.listdir("/dev/fd")]


def _shut_if_published(fd: int, published: Collection[bytes]) -> bool:
    # gloo may close it meanwhile, and another thread open something else under its number: a copy stays
    # what it is.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        ends = [_sockaddr(copy.family, end) for end in (copy.getsockname(), copy.getpeername())]
        if any(end in value for end in ends for value in published):
            copy.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _sockaddr(family: int, address: tuple[str, int] | tuple[str, int, int, int]) -> bytes:
    """What of it lies in memory alike everywhere: port and address, with the flow between them for IPv6."""
    host, port = address[:2]
    flow = b"" if family == socket.AF_INET else bytes(4)
    return struct.pack("!H", port) + flow + socket.inet_pton(family, host)
