"""How a connection opens: one exchange of fixed size, in which nothing is unpickled.

    greeting (328 bytes, client)         welcome (280 bytes, server)
    ──────────────────────────────       ───────────────────────────────────────
    4s    magic  b"LPC1"                 4s    magic  b"LPC1"
    H     version                        H     version
    B     flags  (bit 0: calls overlap)  B     verdict (see VERDICTS)
    B     length of the token            B     length of the name
    64s   token                          16s   incarnation, random per server start
    256s  name of the peer               256s  name of the server

The server reads nothing else of a connection before the token has been compared.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from launchpad.courier.errors import ProtocolError
from launchpad.courier.wire import Chunk

VERSION = 1
OVERLAP = 1  # a flag of the greeting: calls on this connection may overlap

WELCOME, BAD_TOKEN, BAD_VERSION = 0, 1, 2
VERDICTS = {WELCOME: "welcome", BAD_TOKEN: "wrong token", BAD_VERSION: "another version"}

_MAGIC = b"LPC1"
_GREETING = struct.Struct("<4sHBB64s256s")
_WELCOME = struct.Struct("<4sHBB16s256s")
GREETING_SIZE = _GREETING.size
WELCOME_SIZE = _WELCOME.size


class Greeting(NamedTuple):
    """What a client says first. Everything but the magic may be wrong: the server decides."""

    version: int
    flags: int
    token: bytes
    peer: str


class Welcome(NamedTuple):
    """What a server answers to it."""

    version: int
    verdict: int
    incarnation: bytes
    server: str


def encode_greeting(token: bytes, peer: str, flags: int = 0) -> bytes:
    """What a client says first; `peer` is cut to what fits."""
    name = peer.encode()[:255]
    return _GREETING.pack(_MAGIC, VERSION, flags, len(token), token, name)


def decode_greeting(data: Chunk) -> Greeting:
    """Raises ProtocolError if no courier client says such a thing."""
    magic, version, flags, token_len, token, name = _GREETING.unpack(data)
    if magic != _MAGIC or token_len > 64:
        raise ProtocolError("not a courier greeting")
    return Greeting(version, flags, token[:token_len], _text(name))


def encode_welcome(verdict: int, incarnation: bytes, server: str) -> bytes:
    """What a server answers; `server` is cut to what fits."""
    name = server.encode()[:255]
    return _WELCOME.pack(_MAGIC, VERSION, verdict, len(name), incarnation, name)


def decode_welcome(data: Chunk) -> Welcome:
    """Raises ProtocolError if no courier server says such a thing."""
    magic, version, verdict, _, incarnation, name = _WELCOME.unpack(data)
    if magic != _MAGIC or verdict not in VERDICTS:
        raise ProtocolError("not a courier welcome: something else listens at this address")
    return Welcome(version, verdict, incarnation, _text(name))


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")
