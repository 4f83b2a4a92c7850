"""The frames: however the stream is cut, the same ones come out; anything else is an error."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.protocol.framing import Chunk

sizes = st.one_of(st.integers(0, 40), st.integers(0, 40_000), st.sampled_from([32_768, 65_536]))


class Frame(NamedTuple):
    kind: int
    call_id: int
    method: bytes
    body: Chunk
    buffers: Sequence[Chunk]
    timeout_us: int
    header_data: Chunk = b""


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    return Frame(
        draw(st.sampled_from(sorted(framing.KINDS))),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.text(max_size=20)).encode(),
        _pattern(draw(sizes)),
        [_pattern(size) for size in draw(st.lists(sizes, max_size=4))],
        draw(st.integers(0, 2**64 - 1)),
        draw(st.sampled_from([b"", b"note", b"n" * 40_000])),
    )


def _pattern(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def encode(frame: Frame) -> bytes:
    views = [memoryview(buffer) for buffer in frame.buffers]
    chunks = framing.encode(
        frame.kind,
        frame.call_id,
        frame.method,
        bytes(frame.body),
        views,
        frame.timeout_us,
        bytes(frame.header_data),
    )
    return b"".join(bytes(chunk) for chunk in chunks)


def plain(frame: Frame | framing.Fields) -> tuple[object, ...]:
    kind, call_id, method, body, buffers, timeout_us, notes = frame
    return kind, call_id, method, bytes(body), [bytes(b) for b in buffers], timeout_us, bytes(notes)


def feed(decoder: framing.FrameDecoder, stream: bytes, pieces: list[int]) -> list[framing.Fields]:
    """Receives `stream` in reads of so many bytes each, the last one again and again."""
    found: list[framing.Fields] = []
    at = turn = 0
    while at < len(stream):
        n = min(pieces[min(turn, len(pieces) - 1)], len(decoder.buffer), len(stream) - at)
        decoder.buffer[:n] = stream[at : at + n]
        found += decoder.received(n)
        at, turn = at + n, turn + 1
    return found


@settings(max_examples=60)
@given(
    sent=st.lists(frames(), min_size=1, max_size=4),
    pieces=st.lists(st.integers(1, 200), max_size=60).map(lambda pieces: [*pieces, 70_000]),
)
def test_any_split_of_a_stream_gives_the_same_frames(sent: list[Frame], pieces: list[int]) -> None:
    stream = b"".join(encode(frame) for frame in sent)
    decoder = framing.FrameDecoder()

    received = feed(decoder, stream, pieces)

    assert [plain(frame) for frame in received] == [plain(frame) for frame in sent]
    assert decoder.is_between_frames


@given(stream=st.binary(min_size=2, max_size=300))
def test_garbage_is_a_protocol_error_or_an_unfinished_frame_but_never_a_hang(stream: bytes) -> None:
    decoder = framing.FrameDecoder(max_bytes=1 << 20)

    try:
        feed(decoder, stream, [7])
    except ProtocolError:
        return

    assert len(stream) < 32 or stream[0] == 0xC7


@pytest.mark.parametrize("position", [0, 1])
def test_a_wrong_magic_or_kind_is_a_protocol_error(position: int) -> None:
    stream = bytearray(encode(Frame(framing.CALL, 1, b"m", b"body", [], 0)))
    stream[position] = 0xEE

    with pytest.raises(ProtocolError, match="not a courier frame"):
        feed(framing.FrameDecoder(), bytes(stream), [1000])


@pytest.mark.parametrize(
    ("name_len", "n_buffers", "body_len", "table"),
    [
        (0, 0, 1 << 40, b""),
        (1025, 1, 0, b""),
        (0, 2, 10, struct.pack("<2Q", 1 << 20, 1 << 63)),
    ],
)
def test_what_exceeds_a_limit_is_refused_before_memory_is_taken(
    name_len: int, n_buffers: int, body_len: int, table: bytes
) -> None:
    header = struct.pack("<BBHIQQQ", 0xC7, framing.CALL, name_len, n_buffers, 1, body_len, 0)

    with pytest.raises(ProtocolError, match="the limit is"):
        feed(framing.FrameDecoder(max_bytes=1 << 20), header + table, [1000])


def test_a_message_with_too_many_buffers_is_refused_where_it_is_made() -> None:
    with pytest.raises(ProtocolError, match="Join the small arrays"):
        framing.encode(framing.CALL, 1, b"m", b"", [memoryview(b"x")] * 65_536)


def test_a_small_frame_needs_one_read_and_is_one_piece() -> None:
    chunks = framing.encode(framing.CALL, 1, b"method", b"body")
    decoder = framing.FrameDecoder()
    decoder.buffer[: len(chunks[0])] = chunks[0]

    received = decoder.received(len(chunks[0]))

    assert len(chunks) == 1
    assert plain(received[0]) == (framing.CALL, 1, b"method", b"body", [], 0, b"")


def test_a_read_as_long_as_the_frame_it_continues_is_not_taken_for_that_frame() -> None:
    sent = [Frame(framing.CALL, i, b"name", _pattern(64), [], 0) for i in range(2)]
    stream = b"".join(map(encode, sent))
    assert len(stream) == 200

    received = feed(framing.FrameDecoder(), stream, [36, 100, 64])

    assert [plain(frame) for frame in received] == [plain(frame) for frame in sent]


def test_more_is_read_at_once_when_more_is_there() -> None:
    sent = [Frame(framing.CALL, i, b"name", _pattern(i % 50), [], 0) for i in range(500)]
    stream = memoryview(b"".join(map(encode, sent)))
    decoder = framing.FrameDecoder(scratch_bytes=1000, most_scratch_bytes=5000)
    received, rooms = [], []

    while stream:
        rooms.append(len(decoder.buffer))
        n = min(len(stream), len(decoder.buffer))
        decoder.buffer[:n] = stream[:n]
        stream = stream[n:]
        received += decoder.received(n)

    assert [plain(frame) for frame in received] == [plain(frame) for frame in sent]
    assert rooms[0] == 1000
    assert 4900 < max(rooms) <= 5000


def received_alone(stream: bytes) -> framing.Fields | None:
    """The frame, on the short way; what the decoder had read is overwritten meanwhile."""
    decoder = framing.FrameDecoder()
    decoder.buffer[: len(stream)] = stream
    fields = decoder.received_alone(len(stream))
    decoder.buffer[: len(stream)] = bytes(len(stream))
    return fields


@pytest.mark.parametrize("size", [0, 1, 470, 480, 490, 10_000])
@pytest.mark.parametrize("header", [b"", b"header"])
def test_a_frame_that_comes_alone_is_the_same_on_the_short_way(size: int, header: bytes) -> None:
    sent = Frame(framing.RESULT, 7, b"name", _pattern(size), [], 9, header)

    fields = received_alone(encode(sent))

    assert fields == (*sent[:3], _pattern(size), (), 9, header)
    assert feed(framing.FrameDecoder(), encode(sent), [100_000]) == [fields]


def test_a_frame_that_comes_alone_with_its_buffers_is_cut_up_at_once() -> None:
    sent = Frame(framing.RESULT, 7, b"name", _pattern(600), [_pattern(5000), b"", _pattern(7)], 9)

    fields = received_alone(encode(sent))

    assert fields is not None
    assert fields[:4] == sent[:4]
    assert [bytes(buffer) for buffer in fields[4]] == sent[4]
    memoryview(fields[4][0])[:1] = b"!"  # it is ours


def test_a_large_buffer_is_received_into_the_memory_that_the_frame_then_has() -> None:
    stream = encode(Frame(framing.RESULT, 1, b"", b"b", [_pattern(1 << 20)], 0))
    decoder = framing.FrameDecoder()
    decoder.buffer[:1000] = stream[:1000]
    decoder.received(1000)

    final = decoder.buffer
    final[:] = stream[1000:]
    (frame,) = decoder.received(len(final))

    final[-1:] = b"!"
    assert len(final) > 1_000_000
    assert bytes(frame[4][0])[-1:] == b"!"
