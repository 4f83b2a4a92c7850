"""Transports that carry bytes between clients and servers. The first part of an address selects one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from launchpad.courier.transport import network_address
from launchpad.courier.transport.stream_socket import Listener, Socket

_MODULES = {
    "unix": "launchpad.courier.transport.unix",
    "tcp": "launchpad.courier.transport.tcp",
    "tcp+plaintext": "launchpad.courier.transport.tcp",
    "inproc": "launchpad.courier.transport.inprocess",
}


class Transport(Protocol):
    """The functions that the module of a transport has."""

    #: Returns True if the peer has closed a connection on which nothing is expected. None for a transport
    #: that needs no check, because the first write to a closed peer fails.
    is_stale: Callable[[Socket], bool] | None
    #: Returns a listener at an address. Raises OSError if another server has the address.
    listen: Callable[[str], Listener]
    #: Makes one attempt to connect to an address, with a limit in seconds. Raises OSError if no server is up.
    connect: Callable[[str, float | None], Socket]
    #: Raises a ValueError that quotes the address if it is malformed.
    check: Callable[[str], object]


def is_grpc(address: str) -> bool:
    """Return True if the address is for gRPC (`courier/grpc`) rather than for one of these transports.

    Raises:
        ValueError: It is a malformed gRPC address.
    """
    if network_address.transport_of(address) != network_address.GRPC:
        return False
    network_address.parse(address, network_address.GRPC)
    return True


def find(address: str) -> Transport:
    """Return the transport of an address.

    Raises:
        ValueError: There is no transport for the address, or it is malformed.
    """
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in _MODULES:
        raise ValueError(
            f"{address!r} is no address of a courier server; there are unix:/absolute/path, tcp:HOST:PORT, "
            "tcp+plaintext:HOST:PORT, inproc:anything, grpc:HOST:PORT and grpc+plaintext:HOST:PORT"
        )
    transport = cast("Transport", importlib.import_module(_MODULES[scheme]))
    transport.check(address)
    return transport


def load(name: str) -> Any:
    """Import `module:name` now and return it. For parts that most programs don't need."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
