"""The address at which other ranks reach this worker's host, for libraries with their own sockets."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

from launchpad.runtime.context import RunContext

_LOOPBACK = "127.0.0.1"
# The number of the request on Linux. On other systems, the call fails.
_SIOCGIFADDR = 0x8915


def own_address(me: RunContext) -> str:
    """Return an IP address at which the others reach this host, or the loopback's if all are on one host."""
    if me.addresses.listens_at:
        return me.addresses.listens_at.removeprefix("tcp:").rpartition(":")[0].strip("[]")
    # Others know this host's servers by the names of services. These names don't lead to other ports, so use
    # the host's own address.
    if me.addresses.known_as:
        return socket.gethostbyname(socket.gethostname())
    return _LOOPBACK


def free_port(address: str) -> int:
    """Return a port that was free a moment ago."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port: int = server.getsockname()[1]
    return port


def interface_of(address: str) -> str:
    """Return the network interface with this IPv4 address, or "" if it cannot be found."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query_socket:
        for _, name in socket.if_nameindex():
            # The call fails for an interface without an IPv4 address.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(
                    query_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15])
                )
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""
