"""How bytes get from a client to a server, by the first part of an address."""

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
    """What the module of a transport with sockets offers."""

    #: Whether the peer has closed a connection on which nothing is expected; None where the first
    #: write would tell.
    is_stale: Callable[[Socket], bool] | None
    #: A listener at an address. OSError when another server has it.
    listen: Callable[[str], Listener]
    #: One attempt, with an address and a limit in seconds. OSError when no server is there.
    connect: Callable[[str, float | None], Socket]
    #: Raises a ValueError that quotes the address when it is malformed.
    check: Callable[[str], object]


def is_grpc(address: str) -> bool:
    """It is served by gRPC (`courier/grpc`), not on sockets of ours. ValueError if it is malformed."""
    if network_address.transport_of(address) != network_address.GRPC:
        return False
    network_address.parse(address, network_address.GRPC)
    return True


def find(address: str) -> Transport:
    """The transport of an address; a ValueError where there is none, or the address is malformed."""
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
    """What stands in a module, `module:name`, imported now: most programs do without it."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
