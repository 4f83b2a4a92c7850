"""What few frames have to say, in the notes that follow the method's name.

    offset  size  field
    ──────  ────  ──────────────
         0     1  tag (see TAGS)
         1     2  length
         3        what it says

Most frames have no notes, and cost nothing for it. Unknown tags are passed over, so that a newer
peer may say more than we understand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.framing import Chunk

TRACE, SEGMENT, COMPRESSED, STREAMS = 1, 2, 3, 4
TAGS = {
    TRACE: "the caller's span, as in W3C Trace Context",
    SEGMENT: "the buffers are not in the frame, but in shared memory (shm/socket.py)",
    COMPRESSED: "body and buffers are compressed; the sizes they had (compression.py)",
    STREAMS: "arguments that are streams (server/stream_call.py)",
}

_ENTRY = struct.Struct("<BH")


def encode(header_data: Mapping[int, bytes]) -> bytes:
    """The notes of a frame, in the order of the mapping."""
    return b"".join(_ENTRY.pack(tag, len(text)) + text for tag, text in header_data.items())


def trace_of(data: Chunk) -> bytes:
    """The caller's span; empty if the notes say nothing of it."""
    return decode(data).get(TRACE, b"") if data else b""


def decode(data: Chunk) -> dict[int, bytes]:
    """The notes by tag. Raises ProtocolError where a length does not fit."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data):
            raise ProtocolError("the notes of a frame end within an entry")
        tag, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + size
        if at > len(data):
            raise ProtocolError(f"a note of {size} bytes is cut short")
        found[tag] = bytes(data[at - size : at])
    return found
