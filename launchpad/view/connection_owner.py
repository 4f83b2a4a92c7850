"""The user whose process holds the other end of a connection within this host, as Linux knows it."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path

End = tuple[str, int | None]

# inet_diag: the request that `ss` sends for one socket (sock_diag(7)), and where the answer has its fields.
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_MESSAGE, _QUERY = struct.Struct("=IHHII"), struct.Struct("=BBBBI")
_ENDS, _REST = struct.Struct("!HH16s16s"), struct.Struct("=III")
_STATE, _UID = struct.Struct("=xB"), struct.Struct("=I")
_UID_AT = 4 + _ENDS.size + _REST.size + 3 * 4  # behind state and ends: a timer and two queues
_ANY = 0xFFFFFFFF

_ESTABLISHED = 1
"""In any other state the kernel may say 0, which is root's number: no process holds the socket any more."""


def is_of_this_user(client: End | None, server: End | None) -> bool:
    """True if this user or root holds the client's end; also where the system cannot tell.

    Args:
        client, server: The two ends, IPv4.
    """
    if not sys.platform.startswith("linux"):
        return True
    if client is None or server is None or client[1] is None or server[1] is None:
        return False
    ends = (client[0], client[1]), (server[0], server[1])
    try:
        owner = _asked(*ends)
    except OSError:  # a sandbox without netlink
        owner = _listed(*ends)
    return owner in (os.getuid(), 0)


def _asked(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Asks the kernel for this one socket; that takes as long however many there are."""
    addresses = (ipaddress.IPv4Address(host).packed for host in (client[0], server[0]))
    query = (
        _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY)
        + _ENDS.pack(client[1], server[1], *addresses)
        + _REST.pack(0, _ANY, _ANY)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        size = _MESSAGE.size + len(query)
        kernel.send(_MESSAGE.pack(size, _BY_FAMILY, _REQUEST, 0, 0) + query)
        answer = kernel.recv(4096)
    if _MESSAGE.unpack_from(answer)[1] != _BY_FAMILY:  # there is no such socket
        return None
    (state,) = _STATE.unpack_from(answer, _MESSAGE.size)
    (uid,) = _UID.unpack_from(answer, _MESSAGE.size + _UID_AT)
    return int(uid) if state == _ESTABLISHED else None


def _listed(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Looks the socket up in the kernel's list of all: proc(5)."""
    ends = [_as_the_kernel_writes(client), _as_the_kernel_writes(server)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, _, _, _, uid, *_ = line.split()
        if [local, remote] == ends and int(state, 16) == _ESTABLISHED:
            return int(uid)
    return None


def _as_the_kernel_writes(end: tuple[str, int]) -> str:
    """`0100007F:1F90` for 127.0.0.1:8080."""
    host, port = end
    (number,) = struct.unpack("=I", ipaddress.IPv4Address(host).packed)
    return f"{number:08X}:{port:04X}"
