"""`client.with_options(compress=True)`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad import courier
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


def test_fewer_bytes_travel(unix_client_of) -> None:
    client = unix_client_of(echo=lambda value: value)

    client.with_options(compress=True).echo("x" * 1_000_000)

    assert client._channel.counts[b"echo"].bytes_out < 20_000
    assert client._channel.counts[b"echo"].bytes_in < 20_000


def test_too_large_a_call_is_refused_before_it_is_sent(unix_client_of) -> None:
    client = unix_client_of(max_bytes=1 << 20, size_of=len)

    for _ in range(2):  # also where it was not yet known what the server takes
        with pytest.raises(courier.MessageTooLarge, match="takes 1048576 at once"):
            client.size_of(bytes(2 << 20))

    assert client.size_of(b"next") == 4
    assert client._channel.connections.idle_connections[0].was_used


def test_too_large_a_result_is_an_error_of_one_call(serve, connect, unix_address) -> None:
    serve(unix_address, make=bytes)
    client = connect(unix_address, max_bytes=1 << 20)

    with pytest.raises(courier.MessageTooLarge, match="The method has run"):
        client.make(2 << 20)

    assert client.make(3) == bytes(3)
