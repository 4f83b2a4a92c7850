"""What carriers do to the bytes of a connection, and who is at its other end, seen by whole clients."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier import keyring, transport
from launchpad.courier.caller import Peer
from launchpad.courier.codec import pickling
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.transport import stream_socket
from tests.courier.conftest import CREDENTIALS
from tests.helpers import raw_sockets
from tests.helpers.relay import Relay


@pytest.mark.parametrize("flags", [0, handshake.OVERLAP])
def test_calls_that_arrive_with_the_handshake_are_answered(serve, socket_address, flags) -> None:
    server = serve(socket_address, m=lambda value: value)
    body = pickling.encode((("x",), {}))[0]
    calls = b"".join(framing.encode_small(framing.CALL, i, b"m", body) for i in (1, 2, 3))
    sock = transport.find(socket_address).connect(socket_address, 10)

    with contextlib.closing(sock):
        sock.sendall(handshake.encode_client_hello(server.token, Peer("me"), flags) + calls)
        sock.settimeout(10)
        hello = stream_socket.receive_exactly(sock, handshake.SERVER_HELLO_SIZE)
        answers = raw_sockets.read_frames(sock, 3)

    assert handshake.decode_server_hello(hello).status == handshake.ACCEPTED
    assert [frame[:2] for frame in answers] == [(framing.RESULT, i) for i in (1, 2, 3)]


def test_a_small_answer_that_arrives_with_a_large_one_is_not_left_lying(socket_client_of) -> None:
    client = socket_client_of(m=bytes, call_timeout=20)

    for size in range(130_500, 131_060, 10):  # as large as fits where a client receives
        futures = [client.futures.m(size), client.futures.m(1)]
        assert [len(future.result()) for future in futures] == [size, 1]


def test_large_arguments_and_results_cross_in_both_directions_at_once(socket_client_of) -> None:
    client = socket_client_of(echo=lambda value: value, call_timeout=20)
    values = [bytes([i]) * 3_000_000 for i in range(8)]

    futures = [client.futures.echo(value) for value in values]
    one_by_one = [client.echo(value) for value in values]

    assert one_by_one == values
    assert [future.result() for future in futures] == values


@pytest.mark.timing
@pytest.mark.parametrize("carrier", ["tcp_address", "tls_address"])
@pytest.mark.parametrize("kept_back", [1, 20])
def test_a_deadline_is_kept_although_half_an_answer_has_arrived(
    serve, connect, request, carrier, kept_back
) -> None:
    server = serve(request.getfixturevalue(carrier), m=lambda: 1)
    host, port = server.address.removeprefix("tcp:").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(
        Relay(listener, lambda: socket.create_connection((host, port)))
    ) as relay:
        client = connect(f"tcp:127.0.0.1:{listener.getsockname()[1]}", token=server.token)
        assert [client.m(), client.futures.m().result(10)] == [1, 1]
        quick = client.with_options(timeout_s=0.3)

        relay.keeps_back = kept_back
        began = time.monotonic()
        future = quick.futures.m()
        with pytest.raises(courier.DeadlineExceeded):
            quick.m()
        with pytest.raises(courier.DeadlineExceeded):
            future.result(10)

        assert time.monotonic() - began < 5


def assert_fails(client: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        client.m()
    assert type(client.futures.m().exception(10)) is error


def test_a_client_that_alone_has_credentials_is_told_so(serve, connect, tcp_address, keys) -> None:
    serve(tcp_address, m=lambda: 1)
    keys("tcp:", b"", CREDENTIALS)

    words = "does not speak TLS.* has no credentials for that address in its keyring"
    assert_fails(connect(tcp_address), courier.ProtocolError, words)
    keyring.remove("tcp:")
    assert connect(tcp_address).m() == 1


def test_a_client_that_lacks_credentials_is_told_so(serve, connect, tcp_address, keys) -> None:
    keys("tcp:", b"", CREDENTIALS)
    serve(tcp_address, m=lambda: 1)
    keyring.remove("tcp:")

    words = r"wants TLS.*keyring\.add\(prefix, token, credentials\)"
    assert_fails(connect(tcp_address), courier.Refused, words)
    keys("tcp:", b"", CREDENTIALS)
    assert connect(tcp_address).m() == 1


def test_the_address_of_an_error_has_the_port_that_the_system_has_chosen(serve, connect) -> None:
    server = serve("tcp:127.0.0.1:0", m=lambda: 1)
    client = connect(server.address)

    with pytest.raises(courier.MethodNotFound) as caught:
        client.no_such_method()

    assert server.address != "tcp:127.0.0.1:0"
    assert f"({server.address}) has no method 'no_such_method'" in str(caught.value)
