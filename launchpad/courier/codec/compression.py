"""Compressed messages, for networks that are slower than zlib.

The caller asks for compression (`client.with_options(compress=True)`). The answer to a compressed call is
compressed, too. Small messages are sent as they are, and so are parts that don't get smaller.

Both ends call `pack_if_worthwhile` before they send a message, and `unpack_if_packed` before they decode
one. Code that handles many small calls first checks for the option, or for headers, by itself: an `if` costs
nothing, and calling a function does.

The header of a compressed frame has eight bytes for the body and eight for each buffer: the size before
compression, or 0 for a part that is not compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing

_LEVEL = 1  # of 9: several times faster than the default, and nearly as small
_MAX_PARTS = 8000  # more sizes would not fit into a header


def pack_if_worthwhile(
    body: bytes, buffers: Sequence[memoryview], header_data: bytes = b""
) -> tuple[bytes, list[memoryview], bytes]:
    """Return a message and its headers as they are sent: compressed, unless it is too small to gain by it."""
    is_large = bool(buffers) or len(body) > framing.SMALL
    if not is_large or len(buffers) >= _MAX_PARTS:
        return body, list(buffers), header_data
    packed_body, packed_buffers, header = pack(body, buffers)
    header_data += framing.encode_headers({framing.COMPRESSED: header})
    return packed_body, packed_buffers, header_data


def is_packed(header_data: framing.Chunk) -> bool:
    """Return True if a message with these headers is compressed. Its answer must be compressed, too."""
    return framing.COMPRESSED in framing.decode_headers(header_data)


def unpack_if_packed(
    headers: Mapping[int, bytes],
    body: framing.Chunk,
    buffers: Sequence[framing.Chunk],
    max_bytes: int,
) -> tuple[framing.Chunk, Sequence[framing.Chunk]]:
    """Return a message as it was before `pack_if_worthwhile`. Its headers contain the sizes.

    Raises:
        ProtocolError: As for `unpack`.
    """
    header = headers.get(framing.COMPRESSED)
    if header is None:
        return body, buffers
    return unpack(header, body, buffers, max_bytes)


def pack(body: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[memoryview], bytes]:
    """Compress the parts of a message; return the body, the buffers, and the header with their sizes."""
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
    """Undo `pack`.

    Raises:
        ProtocolError: `pack` did not make this, or the message is larger than `max_bytes`.
    """
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
        parts.append(bytearray(data))  # private and writable, like parts that arrive uncompressed
    return parts[0], parts[1:]
