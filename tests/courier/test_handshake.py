"""F40: who may call is decided before anything else of a connection is read."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading

import pytest

from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.caller import Peer
from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.server import handshake as server_handshake
from tests.courier.conftest import reach

touched = threading.Event()


class Canary:
    """Unpickling it is noticed."""

    def __reduce__(self):
        return touch, ()


def touch() -> None:
    touched.set()


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("token", [b"", b"wrong", b"right-but-longer"])
def test_f40_a_wrong_token_is_refused_and_nothing_is_unpickled(serve, unix_address, token) -> None:
    touched.clear()
    serve(unix_address, token=b"right", m=lambda value: value)

    with reach(unix_address) as sock:
        sock.sendall(handshake.encode_client_hello(token, Peer("stranger")))
        body = pickle.dumps(((Canary(),), {}))
        with contextlib.suppress(BrokenPipeError):  # the server may have hung up by now
            for chunk in framing.encode(framing.CALL, 1, b"m", body):
                sock.sendall(chunk)
        answer = read_to_end(sock)

    assert handshake.decode_server_hello(answer).status == handshake.BAD_TOKEN
    assert not touched.is_set()


def test_the_canary_is_noticed_where_the_token_is_right(serve, unix_address) -> None:
    touched.clear()
    serve(unix_address, token=b"right", m=lambda value: None)

    with reach(unix_address) as sock:
        sock.sendall(handshake.encode_client_hello(b"right", Peer("friend")))
        sock.recv(handshake.SERVER_HELLO_SIZE, socket.MSG_WAITALL)
        for chunk in framing.encode(framing.CALL, 1, b"m", pickle.dumps(((Canary(),), {}))):
            sock.sendall(chunk)
        sock.recv(1)

    assert touched.is_set()


@pytest.mark.every_transport
def test_the_client_is_told_which_it_was(serve, connect, address) -> None:
    serve(address, name="vault", token=b"right", m=lambda: 1)

    with pytest.raises(courier.Refused, match="refused our token") as caught:
        connect(address, token=b"wrong").m()

    assert (caught.value.server, caught.value.address) == ("vault", address)
    assert isinstance(caught.value, courier.NotSent)


def test_a_client_without_a_token_is_told_where_to_put_one(serve, connect, address) -> None:
    serve(address, token=b"right", m=lambda: 1)

    with pytest.raises(courier.Refused, match=r"no token was found.*keyring"):
        connect(address).m()


@pytest.mark.every_transport
def test_futures_are_refused_too(serve, connect, address) -> None:
    serve(address, token=b"right", m=lambda: 1)

    future = connect(address, token=b"wrong").futures.m()

    with pytest.raises(courier.Refused):
        future.result(10)


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


def test_the_keyring_opens_the_longest_matching_prefix(serve, connect, address, keys) -> None:
    keys(address[:6], b"general")
    keys(address, b"special")
    serve(address, m=lambda: 1)

    answer = connect(address, token=b"special").m()

    assert answer == connect(address).m() == 1


def test_the_keyring_may_learn_the_token_after_the_client_was_made(
    serve, connect, address, keys
) -> None:
    serve(address, token=b"late", m=lambda: 1)
    client = connect(address)

    keys(address, b"late")

    assert client.m() == 1


def test_an_unknown_address_has_no_token() -> None:
    assert keyring.find("unix:/nowhere") == b""


def test_a_token_that_is_too_long_is_a_mistake_of_the_caller(address) -> None:
    with pytest.raises(ValueError, match="at most 64 bytes"):
        courier.Client(address, token=b"x" * 65)
    with pytest.raises(ValueError, match="at most 64 bytes"):
        courier.Server(address=address, token=b"x" * 65)
    with pytest.raises(ValueError, match="at most 64 bytes"):
        keyring.add(address, b"x" * 65)


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n" * 30, b"\0" * 400, b"LPC1" + b"\xff" * 400]
)
def test_noise_ends_its_own_connection_and_no_other(serve, connect, socket_address, noise) -> None:
    serve(socket_address, token=b"right", m=lambda: 1)
    client = connect(socket_address, token=b"right")
    client.m()

    with reach(socket_address) as sock:
        sock.sendall(noise)
        answer = read_to_end(sock)

    assert len(answer) in (0, handshake.SERVER_HELLO_SIZE) or answer.startswith(handshake.TLS_ALERT)
    assert client.m() == 1


def test_f39_malformed_frames_end_their_own_connection_and_no_other(
    serve, connect, unix_address
) -> None:
    serve(unix_address, m=lambda: 1)
    client = connect(unix_address)
    client.m()

    with reach(unix_address) as sock:
        sock.sendall(handshake.encode_client_hello(b"", Peer("mad")))
        sock.recv(handshake.SERVER_HELLO_SIZE, socket.MSG_WAITALL)
        sock.sendall(b"\xee" * 100)
        rest = read_to_end(sock)

    assert rest == b""
    assert client.m() == 1


@pytest.mark.parametrize("start", [b"", b"LPC1", b"\x16\x03\x01"])
def test_a_handshake_that_is_never_finished_is_given_up(
    serve, socket_address, monkeypatch, start
) -> None:
    monkeypatch.setattr(server_handshake, "_HANDSHAKE_TIMEOUT_S", 0.05)
    serve(socket_address, m=lambda: 1)

    with reach(socket_address) as sock:
        sock.sendall(start)
        answer = read_to_end(sock)

    assert answer == b"" or (start and answer.startswith(handshake.TLS_ALERT))


def test_something_else_at_the_address_is_named_as_such(connect, unix_address) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(unix_address.removeprefix("unix:"))
        listener.listen()
        thread = threading.Thread(target=_answer_nonsense, args=(listener,))
        thread.start()

        with pytest.raises(ProtocolError, match="something else listens"):
            connect(unix_address).m()

        thread.join(10)


def _answer_nonsense(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.recv(handshake.CLIENT_HELLO_SIZE, socket.MSG_WAITALL)
        sock.sendall(b"220 smtp ready\r\n" + b" " * handshake.SERVER_HELLO_SIZE)


def test_the_body_of_an_error_is_never_confused_with_a_value() -> None:
    body = pickling.encode_error(ValueError("x"))

    error = pickling.decode_error(body, server="s", address="a", method="m")

    assert isinstance(error, ValueError)


def test_a_server_of_another_version_is_named_with_its_version(connect, unix_address) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(unix_address.removeprefix("unix:"))
        listener.listen()
        thread = threading.Thread(target=_answer_as_version_9, args=(listener,))
        thread.start()

        with pytest.raises(
            courier.Refused, match=f"speaks version 9 of the protocol, we speak {handshake.VERSION}"
        ):
            connect(unix_address).m()

        thread.join(10)


def _answer_as_version_9(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.recv(handshake.CLIENT_HELLO_SIZE, socket.MSG_WAITALL)
        sock.sendall(b"LPC1" + bytes([9, 0, 2, 0]))  # and nothing that we would understand
