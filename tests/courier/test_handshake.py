"""Who may call is decided before anything else of a connection is read; see also test_hostile_peers.py."""

from __future__ import annotations

import socket

import pytest

from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import handshake
from launchpad.courier.server import handshake as server_handshake
from tests.courier.conftest import reach
from tests.helpers import raw_sockets


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def test_another_version_is_refused_by_name(serve, unix_address, connect, monkeypatch) -> None:
    serve(unix_address, m=lambda: 1)
    encode = handshake.encode_client_hello

    def newer(*args: object) -> bytes:
        data = bytearray(encode(*args))
        data[4] += 1
        return bytes(data)

    monkeypatch.setattr(handshake, "encode_client_hello", newer)

    with pytest.raises(courier.Refused, match=f"version {handshake.VERSION} of the protocol"):
        connect(unix_address).m()


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            b"220 smtp ready\r\n" + b" " * handshake.SERVER_HELLO_SIZE,
            ProtocolError,
            "something else listens",
        ),
        (
            b"LPC1" + bytes([9, 0, 2, 0]),  # and nothing that we would understand
            courier.Refused,
            f"speaks version 9 of the protocol, we speak {handshake.VERSION}",
        ),
    ],
    ids=["something else", "another version"],
)
def test_a_server_that_is_none_of_ours_is_named(
    connect, unix_address, answer, error, words
) -> None:
    with (
        raw_sockets.listening(unix_address, lambda sock: sock.sendall(answer)),
        pytest.raises(error, match=words),
    ):
        connect(unix_address).m()


def test_the_longest_prefix_counts_also_if_it_comes_late(serve, connect, address, keys) -> None:
    serve(address, token=b"special", m=lambda: 1)
    client = connect(address)

    keys(address[:6], b"general")
    keys(address, b"special")

    assert client.m() == 1
    assert keyring.find("elsewhere") == b""


@pytest.mark.parametrize(
    ("flags", "mark"),
    [
        (0, lambda method: method),
        (0, courier.priority),  # whose calls are read before there is a thread to run them
        (handshake.OVERLAP, lambda method: method),
        (handshake.SHARE, lambda method: method),
    ],
)
def test_f39_malformed_frames_end_one_connection(serve, connect, unix_address, flags, mark) -> None:
    serve(unix_address, m=mark(lambda: 1))
    client = connect(unix_address)
    client.m()

    with raw_sockets.greeted(unix_address, flags=flags) as sock:
        sock.sendall(b"\xee" * 100)
        rest = read_to_end(sock)

    assert rest == b""
    assert client.m() == 1


@pytest.mark.parametrize("start", [b"", b"LPC1", b"\x16\x03\x01"])
def test_a_handshake_that_never_ends_is_given_up(serve, socket_address, monkeypatch, start) -> None:
    monkeypatch.setattr(server_handshake, "_HANDSHAKE_TIMEOUT_S", 0.05)
    serve(socket_address, m=lambda: 1)

    with reach(socket_address) as sock:
        sock.sendall(start)
        answer = read_to_end(sock)

    assert answer == b"" or (start and answer.startswith(handshake.TLS_ALERT))
