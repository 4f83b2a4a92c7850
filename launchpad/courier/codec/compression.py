"""Compressed messages, for networks that are slower than zlib.

Asked for by the caller (`client.with_options(compress=True)`); the answer to a compressed call is
compressed too. Small frames are left alone, and so is a part that does not get smaller.

The header that goes with a compressed frame has eight bytes for the body and for each buffer: the
size that it had, or 0 where it is as it was.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

_LEVEL = 1  # of 9: several times faster than the default, and nearly as small
_MAX_PARTS = 8000  # more sizes would not fit into a header


def is_worthwhile(body: bytes, buffers: Sequence[memoryview]) -> bool:
    """Whether a message is large enough to gain anything."""
    return (bool(buffers) or len(body) > framing.SMALL) and len(buffers) < _MAX_PARTS


def pack(body: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[memoryview], bytes]:
    """The parts of a message, compressed; and the header that says so."""
    sizes: list[int] = []
    parts: list[bytes | memoryview] = []
    for part in (memoryview(body), *buffers):
        packed = zlib.compress(part, _LEVEL)
        is_smaller = len(packed) < part.nbytes
        sizes.append(part.nbytes if is_smaller else 0)
        parts.append(packed if is_smaller else part)
    packed_body, *packed_buffers = parts
    header = struct.pack(f"<{len(sizes)}Q", *sizes)
    return bytes(packed_body), [memoryview(part) for part in packed_buffers], header


def unpack(
    header: bytes, body: framing.Chunk, buffers: Sequence[framing.Chunk], max_bytes: int
) -> tuple[framing.Chunk, list[framing.Chunk]]:
    """Undoes `pack`. ProtocolError for what no `pack` has made, or is larger than `max_bytes`."""
    if len(header) != 8 * (1 + len(buffers)):
        raise ProtocolError(
            f"a header of {len(header)} bytes for {len(buffers)} compressed buffers"
        )
    sizes = struct.unpack(f"<{1 + len(buffers)}Q", header)
    if sum(sizes) > max_bytes:
        raise ProtocolError(
            f"a message of {sum(sizes)} bytes uncompressed; the limit is {max_bytes}"
        )
    parts: list[framing.Chunk] = []
    for part, size in zip((body, *buffers), sizes, strict=True):
        if not size:
            parts.append(part)
            continue
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(part, size)
            if len(data) != size or (not inflater.eof and inflater.decompress(b"", 1)):
                raise ProtocolError(f"a compressed part that is not the {size} bytes it says")
        except zlib.error as error:
            raise ProtocolError(f"a compressed part that cannot be read: {error}") from error
        parts.append(bytearray(data))  # private and writable, as parts that came uncompressed are
    return parts[0], parts[1:]
