"""Where the other ranks reach this worker's host, for libraries that open sockets of their own."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

from launchpad.runtime.context import RunContext

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # of Linux; elsewhere it fails


def own_address(me: RunContext) -> str:
    """An IP address of this host that the others reach: the loopback's, where all are on one host."""
    if me.addresses.listens_at:
        return me.addresses.listens_at.removeprefix("tcp:").rpartition(":")[0].strip("[]")
    if (
        me.addresses.known_as
    ):  # its servers are known by names of services, which lead to no other port
        return socket.gethostbyname(socket.gethostname())
    return _LOOPBACK


def free_port(address: str) -> int:
    """A port that was free a moment ago."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port: int = server.getsockname()[1]
    return port


def interface_of(address: str) -> str:
    """The network interface with this IPv4 address; empty if there is none, or the system does not say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                answer = fcntl.ioctl(asks, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""
