"""How bytes get from a client to a server, by the first part of an address."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from launchpad.courier.carriers.sockets import Listener

_MODULES = {"unix": "launchpad.courier.carriers.unix"}
_FORMS = ("unix:/absolute/path", "inproc:anything")


class Carrier(Protocol):
    """What the module of a carrier with sockets offers."""

    def Listener(self, address: str) -> Listener: ...  # noqa: N802

    def connect(self, address: str, timeout_s: float | None) -> socket.socket: ...

    def check(self, address: str) -> None: ...


def find(address: str) -> Carrier:
    """The carrier of an address; a ValueError where there is none, or the address is malformed."""
    import importlib

    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in _MODULES:
        forms = " and ".join(_FORMS)
        raise ValueError(f"{address!r} is no address of a courier server; there are {forms}")
    carrier = cast("Carrier", importlib.import_module(_MODULES[scheme]))
    carrier.check(address)
    return carrier
