"""A courier frame as one message of gRPC."""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import compression, notes, wire

_SCRATCH = 4 << 10


def seal(
    kind: int,
    method: bytes,
    body: bytes,
    buffers: Sequence[memoryview],
    said: bytes = b"",
    *,
    compress: bool = False,
) -> bytes:
    """One frame. Everything is copied: the caller may change its arrays when this returns."""
    if compress and compression.is_worthwhile(body, buffers):
        body, buffers, note = compression.pack(body, buffers)
        said += notes.encode({notes.COMPRESSED: note})
    return b"".join(wire.encode(kind, 0, method, body, buffers, 0, said))


def open(message: bytes, max_bytes: int) -> wire.Fields:
    """Undoes `seal`, but for the compression. Raises ProtocolError for what is not one frame.

    Buffers arrive private and writable.
    """
    decoder = wire.Decoder(max_bytes=max_bytes, scratch_bytes=_SCRATCH)
    frames: list[wire.Fields] = []
    rest = memoryview(message)
    while rest:
        n = min(len(rest), len(decoder.buffer))
        decoder.buffer[:n] = rest[:n]
        frames += decoder.received(n)
        rest = rest[n:]
    if len(frames) != 1 or not decoder.is_between_frames:
        raise ProtocolError(f"a message of {len(message)} bytes is not one courier frame")
    return frames[0]
