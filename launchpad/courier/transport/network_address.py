"""Network addresses as text, `tcp:HOST:PORT`, and the rule that says which ones need TLS.

tcp:learner-0.example:7077      needs TLS, and so credentials in the keyring
tcp:[::1]:7077                  on loopback, which no other host can reach; TLS if there are credentials
tcp+plaintext:10.0.0.5:7077     never uses TLS, on any host, because the user has asked for plaintext

The same rule holds for `grpc:` and `grpc+plaintext:`.
"""

from __future__ import annotations

import errno
import re
import socket
from typing import Any

from launchpad.courier.light_dataclass import dataclass

TCP = "tcp"
GRPC = "grpc"
INPROCESS = "inproc:"  # any text may follow
_PLAINTEXT = "+plaintext"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_FORM = re.compile(
    r"((?:tcp|grpc)(?:\+plaintext)?):(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]+):([0-9]{1,5})"
)


@dataclass(frozen=True)
class Endpoint:
    """A network address: scheme, host and port. The scheme says whether the user asked for plaintext."""

    scheme: str
    host: str
    port: int

    @property
    def wants_plaintext(self) -> bool:
        return self.scheme.endswith(_PLAINTEXT)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}:{host}:{self.port}"


def transport_of(address: str) -> str | None:
    """Return `tcp` or `grpc`, the transport that the address is for, or None if it is for neither."""
    transport = address.partition(":")[0].removesuffix(_PLAINTEXT)
    return transport if transport in (TCP, GRPC) else None


def is_plaintext(address: str) -> bool:
    """Return True if the scheme of the address asks for plaintext."""
    return address.partition(":")[0].endswith(_PLAINTEXT)


def places_of(address: str) -> list[tuple[str, int]]:
    """Return the loopback addresses that `grpc:HOST:PORT` resolves to, as (host, port). Raises OSError."""
    return [where[:2] for _, where in resolve(parse(address, GRPC)) if is_loopback(where[0])]


def parse(address: str, transport: str = TCP) -> Endpoint:
    """Parse an address. Raises a ValueError that quotes the address if it is malformed."""
    match = _FORM.fullmatch(address)
    if match is None or match[1].removesuffix(_PLAINTEXT) != transport:
        raise ValueError(
            f"{address!r} is not of the form {transport}:HOST:PORT or {transport}{_PLAINTEXT}:HOST:PORT "
            f"(an IPv6 address stands in brackets: {transport}:[::1]:7077)"
        )
    scheme, host, port = match.groups()
    if int(port) > 65535:
        raise ValueError(f"{address!r} has a port above 65535")
    return Endpoint(scheme, host.strip("[]"), int(port))


def with_scheme(address: str) -> str:
    """Return `tcp:localhost:7077` for `localhost:7077`, and any other address unchanged."""
    host, _, port = address.rpartition(":")
    return f"{TCP}:{address}" if host in _LOOPBACK and port.isdigit() else address


def resolve(endpoint: Endpoint, *, to_bind: bool = False) -> list[tuple[int, Any]]:
    """Return the family and socket address of each address that the host resolves to. Raises OSError."""
    flags = socket.AI_PASSIVE if to_bind else 0
    try:
        results = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags
        )
    except UnicodeError as error:
        raise ValueError(f"{endpoint} has a host that is no name: {error}") from error
    return [(family, where) for family, _, _, _, where in results]


def is_loopback(ip: str) -> bool:
    """Return True for a loopback address: the other end is on this host, and no other host can listen in."""
    return ip.startswith(("127.", "::ffff:127.")) or ip == "::1"


def check_plaintext(endpoint: Endpoint, ip: str) -> None:
    """Raise PermissionError for plaintext beyond loopback, unless the scheme asks for plaintext."""
    if endpoint.wants_plaintext or is_loopback(ip):
        return
    plain = Endpoint(endpoint.scheme + _PLAINTEXT, endpoint.host, endpoint.port)
    raise PermissionError(
        errno.EPERM,
        f"there are no credentials for this address in the keyring, and {ip} is beyond loopback, "
        "where others could read along, or pose as either side. For TLS call keyring.add(prefix, "
        "token, certificates.make_credentials()), the same credentials in all processes. To go "
        f"without, ask for it by name: {plain}",
        str(endpoint),
    )
