"""The handshake of a connection: one exchange of fixed size, in which nothing is unpickled.

    client hello (356 bytes)             server hello (308 bytes)
    ──────────────────────────────       ───────────────────────────────────────
    4s    magic  b"LPC1"                 4s    magic  b"LPC1"
    H     version                        H     version
    B     flags  (OVERLAP, …)            B     status (see STATUSES)
    B     length of the token            B     length of the name
    Q     most bytes it takes at once    Q     most bytes it takes at once
    64s   token                          16s   incarnation, random per server start
    256s  name of the peer               16s   boot id of its machine
    I     its attempt                    I     its process id
    16s   its incarnation
                                         256s  name of the server

The server reads nothing else from a connection before it has compared the token. The first eight bytes of
both hellos stay the same in every version, so that each side can tell which version the other speaks.
"""

from __future__ import annotations

import functools
import os
import struct
from typing import NamedTuple

from launchpad.courier.caller import Peer
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.framing import MAX_BYTES, Chunk

VERSION = 5

OVERLAP = 1  # calls on this connection may overlap
SHARE = 2  # large buffers may be in shared memory (shm/socket.py), both ways

ACCEPTED = 0
BAD_TOKEN = 1
BAD_VERSION = 2
STATUSES = {ACCEPTED: "accepted", BAD_TOKEN: "wrong token", BAD_VERSION: "another version"}

# The first bytes that a TLS client sends, and the answer of a server without TLS, in TLS's own format:
# alert, fatal, protocol version.
TLS_HELLO = b"\x16\x03"
TLS_ALERT = b"\x15\x03"
NOT_TLS = TLS_ALERT + b"\x01\x00\x02\x02\x46"

_MAGIC = b"LPC1"
_START = struct.Struct("<4sHBB")
_CLIENT_HELLO = struct.Struct("<4sHBBQ64s256sI16s")
_SERVER_HELLO = struct.Struct("<4sHBBQ16s16sI256s")
START_SIZE = _START.size
CLIENT_HELLO_SIZE = _CLIENT_HELLO.size
SERVER_HELLO_SIZE = _SERVER_HELLO.size


class ClientHello(NamedTuple):
    """The client's part of the handshake. Only the magic has been checked; the server checks the rest."""

    version: int
    flags: int
    token: bytes
    peer: Peer
    max_bytes: int = MAX_BYTES


class ServerHello(NamedTuple):
    """The server's part of the handshake."""

    version: int
    status: int
    incarnation: bytes
    server: str
    max_bytes: int = MAX_BYTES
    boot_id: bytes = b""
    pid: int = 0


def encode_client_hello(
    token: bytes, peer: Peer, flags: int = 0, max_bytes: int = MAX_BYTES
) -> bytes:
    """Encode a client's hello. A name that is too long is cut."""
    name = peer.name.encode()[:255]
    of_peer = peer[1:]
    return _CLIENT_HELLO.pack(_MAGIC, VERSION, flags, len(token), max_bytes, token, name, *of_peer)


def read_version(data: Chunk) -> int:
    """Return the version that the sender speaks, from the first START_SIZE bytes of either hello.

    Raises ProtocolError if the data is not a courier hello.
    """
    magic, version, _, _ = _START.unpack_from(data)
    if magic != _MAGIC:
        raise ProtocolError("not a courier handshake: something else listens at this address")
    return int(version)


def decode_client_hello(data: Chunk) -> ClientHello:
    """Decode a client's hello. Raises ProtocolError if the data is not a courier hello."""
    magic, version, flags, token_len, max_bytes, token, name, *of_peer = _CLIENT_HELLO.unpack(data)
    if magic != _MAGIC or token_len > 64:
        raise ProtocolError("not a courier handshake")
    peer = Peer(name.rstrip(b"\0").decode(errors="replace"), *of_peer)
    return ClientHello(version, flags, token[:token_len], peer, max_bytes)


def encode_server_hello(
    status: int, incarnation: bytes, server: str, max_bytes: int = MAX_BYTES
) -> bytes:
    """Encode a server's hello. A name that is too long is cut."""
    name = server.encode()[:255]
    return _SERVER_HELLO.pack(
        _MAGIC, VERSION, status, len(name), max_bytes, incarnation, boot_id(), os.getpid(), name
    )


def decode_server_hello(data: Chunk) -> ServerHello:
    """Decode a server's hello. Raises ProtocolError if the data is not a courier hello."""
    magic, version, status, _, max_bytes, incarnation, boot, pid, name = _SERVER_HELLO.unpack(data)
    if magic != _MAGIC or status not in STATUSES:
        raise ProtocolError("not a courier handshake: something else listens at this address")
    server = name.rstrip(b"\0").decode(errors="replace")
    return ServerHello(version, status, incarnation, server, max_bytes, boot, pid)


@functools.cache
def boot_id() -> bytes:
    """Return the boot id, which is equal for processes that share a machine and its process table.

    Returns zeros if the boot id cannot be read.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)
