"""The protocol, without I/O: bytes in, frames out, no socket anywhere in this file.

A connection opens with a handshake (handshake.py). After that both sides send frames:

    offset  size  field
    ──────  ────  ──────────────────────────────────────────────────────────────
         0     1  magic 0xC7
         1     1  kind (see KINDS)
         2     2  length of the method name
         4     2  number of buffers n
         6     2  length of the headers
         8     8  call id, chosen by the caller; in a stream's frames its number (server/stream_call.py)
        16     8  length of the body
        24     8  time left to the call in µs, 0 for no limit
        32        method name (utf-8) · headers · n lengths (8 bytes each) · body · n buffers

All numbers are little-endian. The body is a pickle, and the buffers are those that the pickle left out of
band (PEP 574). Most frames have no headers, which then cost nothing. A `FrameDecoder` works like
`asyncio.BufferedProtocol`: it provides the memory for the next bytes. So a small frame costs one read into
memory that is reused, and a large frame is read directly into its own memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchpad.courier.buffers import allocate
from launchpad.courier.errors import ProtocolError

Chunk = bytes | bytearray | memoryview


class SharedChunks(list[Chunk]):
    """Buffers in memory that goes back to the other side when no array uses it any more."""


# Nearly all calls end with RESULT or ERROR. No other answer has a smaller number, so `kind <= ERROR` finds
# both.
CALL, RESULT, ERROR, CANCEL, NOT_RUN = range(1, 6)
STREAM, ITEM, END, CREDIT, ITEMS, CALLS, RESULTS = range(6, 13)
KINDS = {
    CALL: "run a method; body: (args, kwargs)",
    RESULT: "it returned; body: the value",
    ERROR: "it raised; body: see pickling.encode_error",
    CANCEL: "do not begin this call if it has not begun, send no more of this stream; no answer",
    NOT_RUN: "the call (0: whatever is unanswered) was not run, nor will it be; body: the reason",
    STREAM: "it returned a stream; body: empty, or the ticket to fetch it with (server/stream_call.py)",
    ITEM: "one item of a stream; body: the value",
    END: "the stream has no more items; body: empty, or see pickling.encode_error",
    CREDIT: "so much more of a stream may be sent; body: items (4 bytes), bytes (8 bytes)",
    ITEMS: "several items of a stream; body: a list of scalars, and of bytearrays: items' own pickles",
    CALLS: "run a method several times; body: ids and arguments (joined.py)",
    RESULTS: "these calls returned; body: ids and values",
}
# The reasons for which a call is not run.
STOPPING = b"stopping"  # the server is stopping or draining: safe to call again
LATE = b"late"  # the deadline passed before the call began
UNMAPPED = b"unmapped"  # the shared memory of its arguments can't be mapped: send them in the frame

MAX_NAME = 1024
MAX_BUFFERS = 65_535
MAX_HEADERS = 65_535
MAX_BYTES = 16 << 30

# The headers, which few frames have, follow the method's name. Each is a tag (1 byte), a length (2 bytes)
# and that number of bytes. Unknown tags are ignored, so that a newer peer may send more.
TRACE = 1  # the caller's span, as in W3C Trace Context
SEGMENT = 2  # the buffers are not in the frame, but in shared memory (shm/socket.py)
COMPRESSED = 3  # body and buffers are compressed; the sizes they had (codec/compression.py)
ARGUMENT_STREAMS = 4  # how many arguments are streams (server/stream_call.py)
RECORDED = 5  # the number of a call that its caller records (telemetry/recording.py)

# The names of courier's own methods, which every server has in addition to its object's. Each contains a
# slash, so none can be written as `client.name`.
BUILTIN_PREFIX = b"courier/"
LIST_METHODS = BUILTIN_PREFIX + b"list_methods"
HEALTH = BUILTIN_PREFIX + b"health"
STATS = BUILTIN_PREFIX + b"stats"
WAITS = BUILTIN_PREFIX + b"waits"
ATTACH = BUILTIN_PREFIX + b"attach"

MAGIC = 0xC7
# The number of buffers and the length of the headers are one field, because both are usually 0.
HEADER = struct.Struct("<BBHIQQQ")
_HEADER_SIZE = HEADER.size
_TAG = struct.Struct("<BH")
_LENGTH = struct.Struct("<Q")

_TINY = 512  # up to this size there is an unpacker for each size, made when it is needed
SMALL = 64 << 10  # up to this size a copy is cheaper than a second entry in the gather list
# Room for the headers, and for a body that is better copied than read into memory of its own.
SCRATCH_BYTES = 80 << 10
_DIRECT_FROM = 32 << 10  # larger parts are read into their own memory, not into the scratch buffer

_pack = HEADER.pack
_unpack_from = HEADER.unpack_from


class _UnpackAll(dict[int, Callable[[memoryview], tuple[Any, ...]]]):
    """Unpackers by size. Each unpacks header and rest in one step, which is cheaper than slicing the rest."""

    def __missing__(self, n: int) -> Callable[[memoryview], tuple[Any, ...]]:
        n_rest = max(0, n - _HEADER_SIZE)
        self[n] = struct.Struct(f"{HEADER.format}{n_rest}s").unpack_from
        return self[n]


_unpack_all = _UnpackAll()


# One complete message: kind, call id, method, body, buffers, time left in µs, headers. It is a plain tuple,
# because making a NamedTuple would cost as much as everything else that is done to a small message.
Fields = tuple[int, int, bytes, Chunk, Sequence[Chunk], int, Chunk]


def encode_small(kind: int, call_id: int, method: bytes, body: bytes, timeout_us: int = 0) -> bytes:
    """Encode a frame without buffers or headers, and with a body up to SMALL, as one piece."""
    return _pack(MAGIC, kind, len(method), 0, call_id, len(body), timeout_us) + method + body


def encode(
    kind: int,
    call_id: int,
    method: bytes = b"",
    body: bytes = b"",
    buffers: Sequence[memoryview] = (),
    timeout_us: int = 0,
    header_data: bytes = b"",
) -> list[Chunk]:
    """Return one frame as chunks for one gathering write; a small frame is a single chunk."""
    check_limits(len(method), len(buffers), len(header_data))
    extra = len(buffers) | len(header_data) << 16
    head = _pack(MAGIC, kind, len(method), extra, call_id, len(body), timeout_us)
    head += method + header_data
    if len(buffers) == 1:
        head += _LENGTH.pack(buffers[0].nbytes)
    elif buffers:
        head += struct.pack(f"<{len(buffers)}Q", *[buffer.nbytes for buffer in buffers])
    if len(body) > SMALL:
        return [head, body, *buffers]
    return [head + body, *buffers]


def encode_headers(headers: Mapping[int, bytes]) -> bytes:
    """Encode the headers of a frame, in the order of the mapping."""
    return b"".join(_TAG.pack(tag, len(text)) + text for tag, text in headers.items())


def decode_headers(data: Chunk) -> dict[int, bytes]:
    """Return the headers by tag. Raises ProtocolError if a length does not fit."""
    headers: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if at + _TAG.size > len(data):
            raise ProtocolError("the headers of a frame end within an entry")
        tag, size = _TAG.unpack_from(data, at)
        at += _TAG.size + size
        if at > len(data):
            raise ProtocolError(f"a header of {size} bytes is cut short")
        headers[tag] = bytes(data[at - size : at])
    return headers


def size(body: Chunk, buffers: Sequence[Chunk]) -> int:
    """Return the size of body and buffers in bytes, without the frame's own header."""
    if len(buffers) == 1:
        return len(body) + memoryview(buffers[0]).nbytes
    return len(body) + sum([memoryview(buffer).nbytes for buffer in buffers])


def is_goaway(frame: Fields) -> bool:
    """Return True for the frame of a stopping server: calls that it has not answered by now have not run."""
    return frame[:2] == (NOT_RUN, 0)


def with_timeout(head: bytes, timeout_us: int) -> bytes:
    """Return a frame, or the first chunk of one, with the call's remaining time replaced."""
    return head[: _HEADER_SIZE - 8] + struct.pack("<Q", timeout_us) + head[_HEADER_SIZE:]


def check_limits(name_len: int, n_buffers: int, headers_len: int = 0) -> None:
    """Raise ProtocolError if the header has no room for these lengths."""
    if name_len > MAX_NAME:
        raise ProtocolError(f"a method name of {name_len} bytes; the limit is {MAX_NAME}")
    if n_buffers > MAX_BUFFERS:
        raise ProtocolError(
            f"a message with {n_buffers} buffers; the limit is {MAX_BUFFERS}. "
            "Join the small arrays into fewer large ones."
        )
    if headers_len > MAX_HEADERS:
        raise ProtocolError(f"headers of {headers_len} bytes; the limit is {MAX_HEADERS}")


def _check_size(n_bytes: int, limit: int) -> None:
    """Raise ProtocolError if the size is above the limit, which an honest peer knows from the handshake."""
    if n_bytes > limit:
        raise ProtocolError(f"a message of {n_bytes} bytes; the limit is {limit}")


class FrameDecoder:
    """A decoder that turns the byte stream of one connection into frames.

    Example:
        n = sock.recv_into(decoder.buffer)
        for frame in decoder.received(n):
            ...

    Not thread-safe. Once it raises ProtocolError, close the connection.

    Args:
        max_bytes: The largest message to accept.
        scratch_bytes: How many bytes to read at once in the beginning.
        most_scratch_bytes: How many bytes to read at once at most. The buffer grows when a read fills it.
    """

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        scratch_bytes: int = 16 << 10,
        most_scratch_bytes: int = 0,
    ) -> None:
        self._max_bytes = max_bytes
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._size = scratch_bytes
        self._most_size = most_scratch_bytes
        self._start = 0
        self._end = 0
        self._large: _LargeFrame | None = None
        self._is_direct = False
        #: The memory for the next bytes of the stream. Never empty.
        self.buffer = self._scratch
        #: True if nothing of an unfinished frame has been received.
        self.is_between_frames = True

    def received(self, n: int) -> list[Fields]:
        """Process `n` bytes that were written to `buffer`; return the frames that are now complete."""
        fields = self.received_alone(n)
        if fields is not None:
            return [fields]
        frames: list[Fields] = []
        if self._is_direct and self._large is not None:
            self._large.advance(n)
        else:
            self._end += n
        while True:
            large = self._large
            if large is None:
                if not self._parse(frames):
                    break
                continue
            while not large.is_complete and self._start < self._end:
                data = self._scratch[self._start : self._end][: large.missing]
                large.part[large.filled : large.filled + len(data)] = data
                large.advance(len(data))
                self._start += len(data)
            if not large.is_complete:
                break
            frames.append(large.get_frame())
            self._large = None
        # Move the remaining bytes to the beginning of the scratch buffer.
        n_left = self._end - self._start
        scratch = self._scratch
        if self._end == self._size < self._most_size:  # it was full, so there may be more to read
            self._size = min(4 * self._size, self._most_size)
            self._scratch = memoryview(bytearray(self._size))
        if n_left and (self._start or self._scratch is not scratch):
            self._scratch[:n_left] = scratch[self._start : self._end]
        self._start = 0
        self._end = n_left
        self.is_between_frames = large is None and n_left == 0
        self._is_direct = large is not None and large.missing >= _DIRECT_FROM
        if large is not None and self._is_direct:
            self.buffer = large.part[large.filled :]
        else:
            self.buffer = self._scratch[n_left:]
        return frames

    def received_alone(self, n: int) -> Fields | None:
        """Return the frame if the `n` bytes are exactly one frame, as they nearly always are; else None.

        If it returns None, nothing has changed, and `received` may be called for the same `n`.
        """
        if n > _TINY:
            return self._received_alone_larger(n)
        unpack = _unpack_all[n]
        magic, kind, name_len, extra, call_id, body_len, timeout_us, body = unpack(self._scratch)
        # If the lengths add up to `n`, all of the header is new. Otherwise a part of it may be that of an
        # earlier frame.
        if (
            _HEADER_SIZE + name_len + body_len != n
            or extra
            or magic != MAGIC
            or kind not in KINDS
            or not self.is_between_frames
        ):
            return self._received_alone_larger(n) if extra else None
        if name_len:
            return kind, call_id, body[:name_len], body[name_len:], (), timeout_us, b""
        return kind, call_id, b"", body, (), timeout_us, b""

    def _received_alone_larger(self, n: int) -> Fields | None:
        """Do what `received_alone` does for a frame that is larger, or has headers or buffers."""
        scratch = self._scratch
        magic, kind, name_len, extra, call_id, body_len, timeout_us = _unpack_from(scratch)
        if magic != MAGIC or kind not in KINDS or not self.is_between_frames:
            return None
        headers_at = _HEADER_SIZE + name_len
        table_at = headers_at + (extra >> 16)
        n_buffers = extra & 0xFFFF
        body_at = table_at + 8 * n_buffers
        at = body_at + body_len
        if at > n:
            return None
        lengths = struct.unpack_from(f"<{n_buffers}Q", scratch, table_at) if n_buffers else ()
        if at + sum(lengths) != n:
            return None
        buffers: list[Chunk] = []
        for length in lengths:
            buffers.append(memoryview(bytearray(scratch[at : at + length])))
            at += length
        method = scratch[_HEADER_SIZE:headers_at].tobytes()
        headers = scratch[headers_at:table_at].tobytes() if extra >> 16 else b""
        body = scratch[body_at : body_at + body_len].tobytes()
        return kind, call_id, method, body, buffers or (), timeout_us, headers

    def _parse(self, frames: list[Fields]) -> bool:
        """Append the small frames that are complete. Return True if a large frame began."""
        data = self._scratch[self._start : self._end].tobytes()  # bytes are cheaper to slice
        at = 0
        end = len(data)
        while end - at >= _HEADER_SIZE:
            fields = _unpack_from(data, at)
            magic, kind, name_len, extra, call_id, body_len, timeout_us = fields
            if magic != MAGIC or kind not in KINDS:
                raise ProtocolError(f"not a courier frame: it begins with {fields[:2]}")
            name_at = at + _HEADER_SIZE
            headers_at = body_at = name_at + name_len
            if extra:
                body_at += extra >> 16
            if extra & 0xFFFF or body_at + body_len - at > self._size:
                self._large = _LargeFrame(fields, self._max_bytes)
                at = name_at
                break
            if body_at + body_len > end:
                break
            at = body_at + body_len
            header_data = data[headers_at:body_at] if extra else b""
            method = data[name_at:headers_at]
            body = data[body_at:at]
            frames.append((kind, call_id, method, body, (), timeout_us, header_data))
        self._start += at
        return self._large is not None


class _LargeFrame:
    """A frame that is being received and has buffers, or is too large for the scratch buffer.

    The first part is name, headers and table, the second is the body, and each buffer is a part. Memory for a
    part is allocated when the part before it is complete, so a header alone cannot make us allocate the sizes
    that it claims.
    """

    def __init__(self, fields: tuple[int, ...], max_bytes: int) -> None:
        _, self._kind, self._name_len, extra, self._call_id, body_len, self._timeout_us = fields
        n_buffers = extra & 0xFFFF
        headers_len = extra >> 16
        check_limits(self._name_len, n_buffers)
        _check_size(body_len, max_bytes)
        self._table_at = self._name_len + headers_len
        self._max_bytes = max_bytes
        self._lengths = [self._table_at + 8 * n_buffers, body_len]
        self._parts: list[Chunk] = []
        self.part = allocate(self._lengths[0])
        self.filled = 0
        self.is_complete = False
        self.advance(0)

    @property
    def missing(self) -> int:
        """Number of bytes that the current part still lacks."""
        return len(self.part) - self.filled

    def advance(self, n: int) -> None:
        """Count `n` bytes that were written to the current part. If it is full, begin the next part."""
        self.filled += n
        while not self.missing and not self.is_complete:
            self._parts.append(self.part)
            if len(self._parts) == 1:
                table = self.part[self._table_at :]
                self._lengths += struct.unpack(f"<{len(table) // 8}Q", table)
                _check_size(sum(self._lengths[1:]), self._max_bytes)
            if len(self._parts) < len(self._lengths):
                self.part = allocate(self._lengths[len(self._parts)])
                self.filled = 0
            else:
                self.is_complete = True

    def get_frame(self) -> Fields:
        head, body, *buffers = self._parts
        method = bytes(head[: self._name_len])
        header_data = bytes(head[self._name_len : self._table_at])
        return self._kind, self._call_id, method, body, buffers, self._timeout_us, header_data
