"""gRPC itself, and what all that we do with it has in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from launchpad.courier.carriers import endpoint as endpoints
from launchpad.courier.carriers.endpoint import Endpoint
from launchpad.courier.trust import keyring

if TYPE_CHECKING:
    from launchpad.courier.trust.credentials import Credentials

try:
    import grpc  # noqa: F401
    from google.protobuf import struct_pb2  # noqa: F401
    from grpc_health.v1 import health_pb2  # noqa: F401
    from grpc_reflection.v1alpha import reflection  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "an address `grpc:…` needs gRPC, which is not (fully) installed here. "
        f"Run: pip install 'launchpad[grpc]' ({missing})"
    ) from missing

# gRPC counts the bytes of a message in an int; this much of it may be our own headers.
_HEADERS = 1 << 20
MAX_BYTES = (1 << 31) - 1 - _HEADERS

COURIER = "launchpad.courier.Courier"
HELLO, STAY, CALL = (f"/{COURIER}/{name}" for name in ("Hello", "Stay", "Call"))

# What goes with a call. gRPC wants `-bin` at the end of the names of what is not text.
TOKEN, PEER, INCARNATION = "courier-token-bin", "courier-peer-bin", "courier-incarnation-bin"
TAKES_BYTES, NOT_RUN = "courier-takes-bytes", "courier-not-run"


class _Forked:
    """Whether this process was forked from one that used gRPC, whose threads it then lacks."""

    def __init__(self) -> None:
        self.user = 0  # the process that has used it

    def check(self) -> None:
        if self.user not in (0, os.getpid()):
            raise RuntimeError(
                f"this process ({os.getpid()}) was forked from one ({self.user}) that had used gRPC, "
                "which does not survive that. Use an address unix: or tcp: here, or start the process "
                "by spawn (multiprocessing.set_start_method('spawn'))."
            )
        self.user = os.getpid()


_forked = _Forked()  # one per process by nature: gRPC's own threads are


def parse(address: str) -> Endpoint:
    """The endpoint of an address `grpc:HOST:PORT`; a ValueError where it is malformed."""
    return endpoints.parse(address, endpoints.GRPC)


def check_process() -> None:
    """RuntimeError in a process that was forked from one that used gRPC."""
    _forked.check()


def limit(max_bytes: int) -> int:
    """What can really be sent or taken at once, where `max_bytes` was asked for."""
    return min(max_bytes, MAX_BYTES)


def find_credentials(endpoint: Endpoint) -> Credentials | None:
    """What the keyring has for it; nothing where plaintext was asked for by name."""
    return None if endpoint.wants_plaintext else keyring.find_credentials(str(endpoint))


def is_local(endpoint: Endpoint) -> bool:
    """Both ends are on this host, where nobody vanishes without a word."""
    try:
        return all(endpoints.is_loopback(where[0]) for _, where in endpoints.resolve(endpoint))
    except OSError:
        return False


def tune(endpoint: Endpoint) -> list[tuple[str, Any]]:
    """Options of both ends. A peer beyond this host that has vanished is noticed within 3 s."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
    ]
    if is_local(endpoint):
        return options
    return [
        *options,
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.http2.ping_timeout_ms", 2000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ]
