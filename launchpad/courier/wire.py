"""The protocol, without I/O: bytes in, frames out, no socket anywhere in this file.

A connection opens with a greeting (greeting.py). After that both sides send frames:

    offset  size  field
    ──────  ────  ──────────────────────────────────────────────────────────────
         0     1  magic 0xC7
         1     1  kind (see KINDS)
         2     2  length of the method name
         4     4  number of buffers n
         8     8  call id, chosen by the caller
        16     8  length of the body
        24     8  time left to the call in µs, 0 for no limit
        32        method name (utf-8) · n lengths (8 bytes each) · body · n buffers

All numbers are little-endian. The body is a pickle, the buffers are what it left out of band
(PEP 574). A `Decoder` has the shape of `asyncio.BufferedProtocol`: it says where the next bytes
shall go, so that a small frame costs one read into memory that is reused, and a large one is read
straight into the memory it is going to live in.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from launchpad.courier.errors import ProtocolError

Chunk = bytes | bytearray | memoryview

CALL, RESULT, ERROR, CANCEL, NOT_RUN = 1, 2, 3, 4, 5
KINDS = {
    CALL: "run a method; body: (args, kwargs)",
    RESULT: "it returned; body: the value",
    ERROR: "it raised; body: see codec.encode_error",
    CANCEL: "do not begin this call if it has not begun; no answer",
    NOT_RUN: "the call was not run and will not be; body: why (see REASONS)",
}
STOPPING, LATE = b"stopping", b"late"
REASONS = {
    STOPPING: "the server is stopping: safe to call again",
    LATE: "the deadline passed before the call began",
}

MAX_NAME = 1024
MAX_BUFFERS = 65_536
MAX_BYTES = 16 << 30

_MAGIC = 0xC7
_HEADER = struct.Struct("<BBHIQQQ")
_HEADER_SIZE = _HEADER.size

_TINY = 512  # up to here there is an unpacker for each size, made when it is needed
SMALL = 64 << 10  # up to here a copy is cheaper than a second entry in the gather list
_DIRECT_FROM = 32 << 10  # from here a part is read into its own memory, past the scratch buffer
_HUGE_FROM = 4 << 20  # from here memory is asked for in huge pages

_pack = _HEADER.pack
_unpack_from = _HEADER.unpack_from


class _UnpackAll(dict[int, Callable[[memoryview], tuple[Any, ...]]]):
    """By size, what unpacks header and rest in one step: cheaper than to cut out the rest."""

    def __missing__(self, n: int) -> Callable[[memoryview], tuple[Any, ...]]:
        rest = max(0, n - _HEADER_SIZE)
        self[n] = struct.Struct(f"{_HEADER.format}{rest}s").unpack_from
        return self[n]


_unpack_all = _UnpackAll()


class Frame(NamedTuple):
    """One message, complete."""

    kind: int
    call_id: int
    method: bytes
    body: Chunk
    buffers: Sequence[Chunk]
    timeout_us: int


# The same without the names: making a Frame costs as much as everything else about a small one.
Fields = tuple[int, int, bytes, Chunk, Sequence[Chunk], int]


def encode_small(kind: int, call_id: int, method: bytes, body: bytes, timeout_us: int = 0) -> bytes:
    """`encode` for a frame without buffers and with a body up to SMALL: one piece."""
    return _pack(_MAGIC, kind, len(method), 0, call_id, len(body), timeout_us) + method + body


def encode(
    kind: int,
    call_id: int,
    method: bytes = b"",
    body: bytes = b"",
    buffers: Sequence[memoryview] = (),
    timeout_us: int = 0,
) -> list[Chunk]:
    """One frame as chunks for one gathering write; a small frame is a single chunk."""
    head = _pack(_MAGIC, kind, len(method), len(buffers), call_id, len(body), timeout_us) + method
    if buffers:
        _check_limits(len(method), len(buffers), len(body) + sum(b.nbytes for b in buffers))
        head += struct.pack(f"<{len(buffers)}Q", *[buffer.nbytes for buffer in buffers])
    if len(body) > SMALL:
        _check_limits(len(method), len(buffers), len(body))
        return [head, body, *buffers]
    return [head + body, *buffers]


def _check_limits(name_len: int, n_buffers: int, n_bytes: int, limit: int = MAX_BYTES) -> None:
    if name_len > MAX_NAME:
        raise ProtocolError(f"a method name of {name_len} bytes; the limit is {MAX_NAME}")
    if n_buffers > MAX_BUFFERS:
        raise ProtocolError(
            f"a message with {n_buffers} buffers; the limit is {MAX_BUFFERS}. "
            "Join the small arrays into fewer large ones."
        )
    if n_bytes > limit:
        raise ProtocolError(
            f"a message of {n_bytes} bytes; the limit is {limit}. Send it in several calls."
        )


class Decoder:
    """Turns the byte stream of one connection into frames.

    Example:
        n = sock.recv_into(decoder.buffer)
        for frame in decoder.received(n):
            ...

    Not for use by two threads at once. After a ProtocolError the connection is of no more use.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, scratch_bytes: int = 16 << 10) -> None:
        self._max_bytes = max_bytes
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._size = scratch_bytes
        self._start = 0
        self._end = 0
        self._large: _LargeFrame | None = None
        self._is_direct = False
        #: Where the next bytes of the stream shall be written. Never empty.
        self.buffer = self._scratch
        #: Nothing of an unfinished frame has been received.
        self.is_between_frames = True

    def received(self, n: int) -> list[Frame]:
        """`n` bytes were written to `buffer`; returns the frames now complete."""
        fields = self.received_alone(n)
        return self._received(n) if fields is None else [Frame._make(fields)]

    def received_alone(self, n: int) -> Fields | None:
        """`received` for one small frame and nothing else, as nearly always; None otherwise.

        None changes nothing: `received` then has to be called for the same `n`.
        """
        unpack = _unpack_all[n if n <= _TINY else _HEADER_SIZE]
        magic, kind, name_len, n_buffers, call_id, body_len, timeout_us, body = unpack(
            self._scratch
        )
        # The lengths also say that the header itself is new, and not of the frame before.
        if (
            _HEADER_SIZE + name_len + body_len != n
            or n_buffers
            or magic != _MAGIC
            or kind not in KINDS
            or not self.is_between_frames
        ):
            return None
        if n > _TINY:
            body = self._scratch[_HEADER_SIZE:n].tobytes()
        if name_len:
            return kind, call_id, body[:name_len], body[name_len:], (), timeout_us
        return kind, call_id, b"", body, (), timeout_us

    def _received(self, n: int) -> list[Frame]:
        frames: list[Frame] = []
        self.is_between_frames = False
        if self._is_direct:
            self._is_direct = False
            self._advance_large(n, frames)
        else:
            self._end += n
        while (frame := self._parse()) is not None:
            frames.append(frame)
        self._compact()
        self.is_between_frames = self._large is None and self._end == 0
        self.buffer = self._next_buffer()
        return frames

    def _next_buffer(self) -> memoryview:
        if self._large is not None and self._large.missing >= _DIRECT_FROM:
            self._is_direct = True
            return self._large.get_rest()
        return self._scratch[self._end :]

    def _parse(self) -> Frame | None:
        """The next frame of the scratch buffer, if it is complete; a large one is set aside."""
        if self._large is not None:
            return self._feed_large()
        start = self._start
        available = self._end - start
        if available < _HEADER_SIZE:
            return None
        fields = _unpack_from(self._scratch, start)
        magic, kind, name_len, n_buffers, call_id, body_len, timeout_us = fields
        if magic != _MAGIC or kind not in KINDS:
            raise ProtocolError(f"not a courier frame: it begins with {fields[:2]}")
        if n_buffers or _HEADER_SIZE + name_len + body_len > self._size:
            _check_limits(name_len, n_buffers, body_len, self._max_bytes)
            self._start += _HEADER_SIZE
            self._large = _LargeFrame(fields, self._max_bytes)
            return self._feed_large()
        body_at = start + _HEADER_SIZE + name_len
        stop = body_at + body_len
        if stop > self._end:
            return None
        self._start = stop
        scratch = self._scratch
        method = bytes(scratch[start + _HEADER_SIZE : body_at]) if name_len else b""
        return Frame(kind, call_id, method, bytes(scratch[body_at:stop]), (), timeout_us)

    def _feed_large(self) -> Frame | None:
        large = self._large
        assert large is not None
        while not large.is_complete and self._start < self._end:
            self._start += large.take(self._scratch[self._start : self._end])
        if not large.is_complete:
            return None
        self._large = None
        return large.get_frame()

    def _advance_large(self, n: int, frames: list[Frame]) -> None:
        large = self._large
        assert large is not None
        large.advance(n)
        if large.is_complete:
            self._large = None
            frames.append(large.get_frame())

    def _compact(self) -> None:
        left = self._end - self._start
        if left and self._start:
            self._scratch[:left] = self._scratch[self._start : self._end]
        self._start, self._end = 0, left


class _LargeFrame:
    """A frame with buffers, or too large for the scratch buffer, on its way in.

    Its parts are name and table, the body, the buffers. Memory for a part is taken when the part
    before it is complete, so a header alone cannot make us allocate what it promises.
    """

    def __init__(self, fields: tuple[int, ...], max_bytes: int) -> None:
        _, self._kind, self._name_len, n_buffers, self._call_id, body_len, self._timeout_us = fields
        self._max_bytes = max_bytes
        self._lengths = [self._name_len + 8 * n_buffers, body_len]
        self._parts: list[Chunk] = []
        self._part = memoryview(b"")
        self._filled = 0
        self.is_complete = False
        self._begin_part()

    @property
    def missing(self) -> int:
        """Bytes that the current part still lacks."""
        return len(self._part) - self._filled

    def get_rest(self) -> memoryview:
        return self._part[self._filled :]

    def take(self, data: memoryview) -> int:
        """Copies what the current part lacks from `data`; returns how much that was."""
        n = min(len(data), self.missing)
        self._part[self._filled : self._filled + n] = data[:n]
        self.advance(n)
        return n

    def advance(self, n: int) -> None:
        self._filled += n
        while not self.missing and not self.is_complete:
            self._end_part()

    def get_frame(self) -> Frame:
        head, body, *buffers = self._parts
        method = bytes(head[: self._name_len])
        return Frame(self._kind, self._call_id, method, body, buffers, self._timeout_us)

    def _begin_part(self) -> None:
        self._part = allocate(self._lengths[len(self._parts)])
        self._filled = 0
        self.advance(0)

    def _end_part(self) -> None:
        self._parts.append(self._part)
        if len(self._parts) == 1:
            self._read_table()
        if len(self._parts) < len(self._lengths):
            self._part = allocate(self._lengths[len(self._parts)])
            self._filled = 0
        else:
            self.is_complete = True

    def _read_table(self) -> None:
        table = self._parts[0][self._name_len :]
        self._lengths += struct.unpack(f"<{len(table) // 8}Q", table)
        _check_limits(self._name_len, 0, sum(self._lengths[1:]), self._max_bytes)


def allocate(n: int) -> memoryview:
    """`n` private writable bytes; from some megabytes on in huge pages, where page faults cost."""
    if n < _HUGE_FROM:
        return memoryview(bytearray(n))
    import mmap

    memory = mmap.mmap(-1, n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
