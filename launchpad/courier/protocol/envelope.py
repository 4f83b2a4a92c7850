"""The envelope in which an exception travels: six parts, none of which is unpickled to open it.

offset  size  field
──────  ────  ──────────────────────────────────────────────
     0    24  the lengths of the parts (4 bytes each); 2**32-1 for a part that is missing
    24        type name · repr · traceback · pickled type · pickled exception · server
"""

from __future__ import annotations

import struct

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.wire import Chunk

_LENGTHS = struct.Struct("<6I")
_MISSING = 0xFFFFFFFF

Parts = tuple[str, str, str, bytes | None, bytes | None, str]


def seal(
    name: str, text: str, traceback: str, kind: bytes | None, whole: bytes | None, origin: str
) -> bytes:
    """The six parts as bytes."""
    parts = (_to_bytes(name), _to_bytes(text), _to_bytes(traceback), kind, whole, _to_bytes(origin))
    lengths = [_MISSING if part is None else len(part) for part in parts]
    return _LENGTHS.pack(*lengths) + b"".join(part for part in parts if part is not None)


def open(body: Chunk) -> Parts:
    """Undoes `seal`. Raises ProtocolError for what is no envelope."""
    if len(body) < _LENGTHS.size:
        raise ProtocolError(f"an error of {len(body)} bytes, which is too short to be one")
    lengths = _LENGTHS.unpack_from(body)
    at = _LENGTHS.size
    parts: list[bytes | None] = []
    for length in lengths:
        size = 0 if length == _MISSING else length
        parts.append(None if length == _MISSING else bytes(body[at : at + size]))
        at += size
    if at != len(body):
        raise ProtocolError(f"an error whose parts make {at} bytes arrived in {len(body)}")
    name, text, traceback, kind, whole, origin = parts
    return _text(name), _text(text), _text(traceback), kind, whole, _text(origin)


def _to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _text(part: bytes | None) -> str:
    return (part or b"").decode(errors="replace")
