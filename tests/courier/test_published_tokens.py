"""A server on the network asks for a token, also where none was named; clients of its user find that."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from launchpad import courier
from launchpad.courier.caller import Peer
from launchpad.courier.protocol import handshake
from launchpad.courier.security import published_token
from launchpad.courier.transport import stream_socket
from tests.courier.conftest import exit_code_of_child
from tests.helpers import other_user
from tests.helpers.other_user import needs_root

keeps_descriptors = pytest.mark.leaks_by_nature  # gRPC does, from its first use on
ADDRESSES = [
    "tcp:127.0.0.1:0",
    "tcp:localhost:0",
    pytest.param("grpc:127.0.0.1:0", marks=keeps_descriptors),
]


@pytest.fixture(autouse=True)
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with the tokens, of this test alone."""
    monkeypatch.setenv("LAUNCHPAD_TOKENS_DIR", str(tmp_path / "tokens"))
    return tmp_path / "tokens"


def status_for(address: str, token: bytes) -> int:
    """What the server's part of the handshake says to a client with this token."""
    host, port = address.rsplit(":", 2)[-2:]
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall(handshake.encode_client_hello(token, Peer("me")))
        answer = stream_socket.receive_exactly(sock, handshake.SERVER_HELLO_SIZE)
    return handshake.decode_server_hello(answer).status


@pytest.mark.parametrize("token", [None, b""])
def test_sound_27_a_server_alone_accepts_no_connection_without_a_token(serve, token) -> None:
    server = serve("tcp:127.0.0.1:0", token=token, ping=lambda: "pong")

    assert status_for(server.address, b"") == handshake.BAD_TOKEN
    assert status_for(server.address, server.token) == handshake.ACCEPTED
    assert len(server.token) == 32


@pytest.mark.parametrize("address", ADDRESSES)
def test_sound_27_a_client_finds_the_token_of_its_own_user_and_else_learns_how_to_be_given_it(
    serve, connect, address, monkeypatch, tmp_path
) -> None:
    server = serve(address, ping=lambda: "pong")
    assert connect(server.address, call_timeout=20).ping() == "pong"
    monkeypatch.setenv("LAUNCHPAD_TOKENS_DIR", str(tmp_path / "another"))  # as on another host

    words = r"no token was found.*Client\(address, token=.*keyring"
    with pytest.raises(courier.Refused, match=words):
        connect(server.address, call_timeout=20).ping()

    assert connect(server.address, token=server.token, call_timeout=20).ping() == "pong"


@needs_root
def test_sound_27_another_user_can_neither_read_the_token_nor_call(serve, tokens) -> None:
    server = serve("tcp:127.0.0.1:0", ping=lambda: "pong")
    (file,) = tokens.iterdir()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o700
    other_user.cannot(file.read_bytes)
    other_user.does(_is_refused, server.address)


def _is_refused(address: str) -> None:
    assert status_for(address, b"") == handshake.BAD_TOKEN


@needs_root
def test_sound_27_a_directory_for_tokens_that_another_user_made_is_refused(monkeypatch) -> None:
    with other_user.shared_directory() as shared:
        monkeypatch.setenv("LAUNCHPAD_TOKENS_DIR", str(shared / "tokens"))
        other_user.does(os.mkdir, shared / "tokens")
        server = courier.Server("alone", address="tcp:127.0.0.1:0")

        with pytest.raises(
            PermissionError, match=r"belongs to user 65534.*give the server a token"
        ):
            server.start()

        assert not server.has_started


@pytest.mark.parametrize(
    "name", ["tcp+plaintext", pytest.param("grpc+plaintext", marks=keeps_descriptors)]
)
def test_sound_27_only_plaintext_needs_no_token(
    serve, connect, name, monkeypatch, tmp_path
) -> None:
    server = serve(f"{name}:127.0.0.1:0", ping=lambda: "pong")
    monkeypatch.setenv("LAUNCHPAD_TOKENS_DIR", str(tmp_path / "another"))

    assert server.token == b""
    assert connect(server.address, call_timeout=20).ping() == "pong"


def test_sound_27_by_a_socket_of_this_user_nothing_is_asked_for(
    serve, connect, unix_address, inproc_address, tmp_path, monkeypatch
) -> None:
    for first in (unix_address, inproc_address):
        also_at = ["tcp:127.0.0.1:0"]
        server = serve(first, also_at=also_at, items=lambda: iter([1, 2]), ping=lambda: "pong")
        with monkeypatch.context() as patch:
            patch.setenv("LAUNCHPAD_TOKENS_DIR", str(tmp_path / "another"))
            client = connect(first, call_timeout=20)
            assert (client.ping(), list(client.items())) == ("pong", [1, 2])
        assert connect(server.addresses[1], call_timeout=20).ping() == "pong"


def test_sound_27_a_client_that_comes_too_early_waits(connect, tcp_address, monkeypatch) -> None:
    """It has connected to a port that is open already, and found no file."""
    server = courier.Server("late", address=tcp_address)
    server.bind("ping", lambda: "pong")
    has_looked = threading.Event()
    find, publish = published_token.find, published_token.PublishedToken

    def find_and_say(ip: str, port: int) -> bytes:
        found = find(ip, port)
        has_looked.set()
        return found

    def publish_late(ip: str, port: int, token: bytes) -> published_token.PublishedToken:
        assert has_looked.wait(20)
        return publish(ip, port, token)

    monkeypatch.setattr(published_token, "find", find_and_say)
    monkeypatch.setattr("launchpad.courier.server.server.PublishedToken", publish_late)
    future = connect(tcp_address).futures.ping()
    server.start()

    assert future.result(20) == "pong"
    server.stop()


def test_sound_27_a_stop_takes_the_token_away_but_not_in_a_forked_child(serve, tokens) -> None:
    server = serve("tcp:127.0.0.1:0")

    exit_code = exit_code_of_child(lambda: server.stop(0.1) or 0)
    after_child = list(tokens.iterdir())
    server.stop()

    assert exit_code == 0
    assert len(after_child) == 1
    assert list(tokens.iterdir()) == []


def test_sound_27_the_next_server_removes_a_killed_ones_token(
    serve, spawn_server, connect, tcp_address, tokens
) -> None:
    running = serve("tcp:127.0.0.1:0", ping=lambda: "pong")
    killed = spawn_server(tcp_address)
    assert connect(tcp_address, call_timeout=20).pid() == killed.pid
    killed.kill()
    killed.wait(10)
    assert len(list(tokens.iterdir())) == 2

    third = serve("tcp:127.0.0.1:0")

    ports = {address.rpartition(":")[2] for address in (running.address, third.address)}
    assert {file.name.rpartition("-")[2] for file in tokens.iterdir()} == ports
    assert connect(running.address, call_timeout=20).ping() == "pong"


def test_sound_27_servers_at_one_port_of_two_addresses_have_a_token_each(serve, connect) -> None:
    one = serve("tcp:127.0.0.1:0", who=lambda: "one")
    two = serve(one.address.replace("127.0.0.1", "127.0.0.2"), who=lambda: "two")

    assert one.token != two.token
    for server, name in ((one, "one"), (two, "two")):
        assert connect(server.address, call_timeout=20).who() == name


def test_the_token_of_a_server_that_stops_can_be_found_until_nobody_can_connect(
    serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("tcp:127.0.0.1:0", ping=lambda: "pong")
    host, port = server.address.rsplit(":", 2)[-2:]
    remove = published_token.PublishedToken.remove
    removed = []

    def remove_after_a_look(published: published_token.PublishedToken) -> None:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 20)
        remove(published)
        removed.append(published)

    monkeypatch.setattr(published_token.PublishedToken, "remove", remove_after_a_look)
    server.stop()

    assert len(removed) == 1
    assert published_token.find(host, int(port)) == b""
