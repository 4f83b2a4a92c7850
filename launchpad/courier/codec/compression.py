"""Compressed messages, for networks that are slower than zlib.

Asked for by the caller (`client.with_options(compress=True)`); the answer to a compressed call is
compressed too. Small frames are left alone, and so is a part that does not get smaller.

The note that goes with a compressed frame has eight bytes for the body and for each buffer: the
size that it had, or 0 where it is as it was.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

_LEVEL = 1  # of 9: several times faster than the default, and nearly as small
_MAX_PARTS = 8000  # more sizes would not fit into a note


def is_worthwhile(body: bytes, buffers: Sequence[memoryview]) -> bool:
    """Whether a message is large enough to gain anything."""
    return (bool(buffers) or len(body) > framing.SMALL) and len(buffers) < _MAX_PARTS


def pack(body: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[memoryview], bytes]:
    """The parts of a message, compressed; and the note that tells."""
    parts = [_compress(part) for part in (memoryview(body), *buffers)]
    header = struct.pack(f"<{len(parts)}Q", *[size for _, size in parts])
    packed_body, *packed_buffers = [part for part, _ in parts]
    return bytes(packed_body), [memoryview(part) for part in packed_buffers], header


def unpack(
    header: bytes, body: framing.Chunk, buffers: Sequence[framing.Chunk], max_bytes: int
) -> tuple[framing.Chunk, list[framing.Chunk]]:
    """Undoes `pack`. ProtocolError for what no `pack` has made, or is larger than `max_bytes`."""
    if len(header) != 8 * (1 + len(buffers)):
        raise ProtocolError(f"a note of {len(header)} bytes for {len(buffers)} compressed buffers")
    sizes = struct.unpack(f"<{1 + len(buffers)}Q", header)
    if sum(sizes) > max_bytes:
        raise ProtocolError(
            f"a message of {sum(sizes)} bytes uncompressed; the limit is {max_bytes}"
        )
    parts = zip((body, *buffers), sizes, strict=True)
    first, *rest = [_decompress(part, size) if size else part for part, size in parts]
    return first, rest


def _compress(part: memoryview) -> tuple[bytes | memoryview, int]:
    packed = zlib.compress(part, _LEVEL)
    return (packed, part.nbytes) if len(packed) < part.nbytes else (part, 0)


def _decompress(part: framing.Chunk, size: int) -> bytearray:
    """Private and writable, as parts that came uncompressed are."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(part, size)
        if len(data) != size or (not inflater.eof and inflater.decompress(b"", 1)):
            raise ProtocolError(f"a compressed part that is not the {size} bytes it says")
    except zlib.error as error:
        raise ProtocolError(f"a compressed part that cannot be read: {error}") from error
    return bytearray(data)
