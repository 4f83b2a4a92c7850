"""How bytes get from a client to a server, by the first part of an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from launchpad.courier.carriers import endpoint

if TYPE_CHECKING:
    from launchpad.courier.carriers.sockets import Listener, Socket

_MODULES = {
    "unix": "launchpad.courier.carriers.unix",
    "tcp": "launchpad.courier.carriers.tcp",
    "tcp+plaintext": "launchpad.courier.carriers.tcp",
    "inproc": "launchpad.courier.carriers.pairs",  # for calls with streams
}
_FORMS = (
    "unix:/absolute/path",
    "tcp:HOST:PORT",
    "tcp+plaintext:HOST:PORT",
    "inproc:anything",
    "grpc:HOST:PORT",
    "grpc+plaintext:HOST:PORT",
)


class Carrier(Protocol):
    """What the module of a carrier with sockets offers."""

    #: Whether the peer has closed a connection on which nothing is expected; None where the first
    #: write would tell.
    is_stale: Callable[[Socket], bool] | None

    def Listener(self, address: str) -> Listener: ...  # noqa: N802

    def connect(self, address: str, timeout_s: float | None) -> Socket: ...

    def check(self, address: str) -> None: ...


def is_grpc(address: str) -> bool:
    """It is served by gRPC (over_grpc), not on sockets of ours. ValueError if it is malformed."""
    if endpoint.carrier_of(address) != endpoint.GRPC:
        return False
    endpoint.parse(address, endpoint.GRPC)
    return True


def find(address: str) -> Carrier:
    """The carrier of an address; a ValueError where there is none, or the address is malformed."""
    import importlib

    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in _MODULES:
        forms = " and ".join((", ".join(_FORMS[:-1]), _FORMS[-1]))
        raise ValueError(f"{address!r} is no address of a courier server; there are {forms}")
    carrier = cast("Carrier", importlib.import_module(_MODULES[scheme]))
    carrier.check(address)
    return carrier
