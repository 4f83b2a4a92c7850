"""`client.with_options(compress=True)`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.courier.codec import compression
from launchpad.courier.errors import ProtocolError

parts = st.binary(max_size=300) | st.integers(0, 5000).map(bytes)


@given(body=parts, buffers=st.lists(parts, max_size=4))
def test_what_was_packed_is_unpacked_the_same(body: bytes, buffers: list[bytes]) -> None:
    packed, views, note = compression.pack(body, [memoryview(buffer) for buffer in buffers])

    again, rest = compression.unpack(note, packed, views, 1 << 20)

    assert (bytes(again), [bytes(part) for part in rest]) == (body, buffers)


@given(note=st.binary(max_size=40), body=parts, buffers=st.lists(parts, max_size=2))
def test_garbage_is_a_protocol_error_or_within_the_limit(note, body, buffers) -> None:
    try:
        first, rest = compression.unpack(note, body, buffers, 10_000)
    except ProtocolError:
        return

    assert len(first) + sum(map(len, rest)) <= 10_000 + len(body) + sum(map(len, buffers))


def test_a_bomb_is_not_blown_up() -> None:
    packed, _, note = compression.pack(bytes(100 << 20), [])

    with pytest.raises(ProtocolError, match="the limit is"):
        compression.unpack(note, packed, [], 1 << 20)
    with pytest.raises(ProtocolError, match="not the 10 bytes"):
        compression.unpack((10).to_bytes(8, "little"), packed, [], 1 << 20)


@pytest.mark.every_transport
def test_calls_results_and_exceptions_arrive_the_same_compressed(client_of) -> None:
    def fail(_: object) -> None:
        raise ValueError("long " * 50_000)

    client = client_of(echo=lambda value: value, fail=fail).with_options(compress=True)
    array = np.zeros((1000, 1000), np.float32)

    answer = client.echo({"array": array, "text": "x" * 100_000})

    assert np.array_equal(answer["array"], array)
    assert answer["array"].flags.writeable
    assert answer["text"] == "x" * 100_000
    with pytest.raises(ValueError, match="long long"):
        client.fail("x" * 100_000)
