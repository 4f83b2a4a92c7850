"""Where TCP may be spoken, with and without TLS, and how a peer that vanishes is noticed (F41)."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchpad.courier.security import certificates
from launchpad.courier.transport import network_address, peer_liveness, tcp
from launchpad.courier.transport.tls import TlsSocket
from tests.courier.conftest import in_background

CREDENTIALS = certificates.make_credentials()
ANYWHERE = "tcp:127.0.0.1:0"


@pytest.fixture
def listen() -> Iterator[Callable[[str], tcp.TcpListener]]:
    with contextlib.ExitStack() as stack:

        def open_listener(address: str) -> tcp.TcpListener:
            listener = tcp.TcpListener(address)
            stack.callback(listener.close)
            return listener

        yield open_listener


def accept(listener: tcp.TcpListener) -> Any:
    assert select.select([listener.sock], [], [], 10)[0]
    return listener.accept()


def exchange(listener: tcp.TcpListener, address: str | None = None) -> tuple[type, bytes]:
    """A question that is sent back; and what kind of socket the client has."""

    def echo() -> None:
        with accept(listener) as sock:
            sock.sendall(sock.recv(100))
            sock.recv(1)

    served = in_background(echo)
    with tcp.connect(address or listener.address, 10) as sock:
        sock.sendall(b"question")
        answer = sock.recv(100)
    served.result(10)
    return type(sock), answer


# Addresses.


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("tcp:learner-0.example:7077", "learner-0.example", 7077),
        ("tcp:127.0.0.1:0", "127.0.0.1", 0),
        ("tcp:[::1]:65535", "::1", 65535),
        ("tcp:[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("tcp+plaintext:10.0.0.5:7077", "10.0.0.5", 7077),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    parsed = network_address.parse(address)

    assert (parsed.host, parsed.port) == (host, port)
    assert str(parsed) == address


@pytest.mark.parametrize(
    "address",
    "tcp: tcp:host tcp::80 tcp:host: tcp:host:http tcp:host:65536 tcp:host:-1 tcp:::1:80 tcp:[::1] "
    "tcp:[host:80 tcp://host:80 udp:host:80".split(),
)
def test_an_address_that_is_none_is_quoted(address: str) -> None:
    with pytest.raises(ValueError, match=r"port above|of the form") as caught:
        tcp.check(address)

    assert repr(address) in str(caught.value)


def test_a_client_needs_a_port_and_a_host_whose_name_is_one(listen) -> None:
    listener = listen(ANYWHERE)

    assert listener.address == f"tcp:127.0.0.1:{listener.sock.getsockname()[1]}"
    with pytest.raises(ValueError, match="has no port"):
        tcp.connect(ANYWHERE, 1)
    with pytest.raises(ValueError, match="no name"):
        tcp.connect(f"tcp:{'x' * 70}.example:80", 1)


# Who listens, and who does not.


@pytest.mark.parametrize(
    ("address", "prefix", "kind"),
    [
        (ANYWHERE, "of others", socket.socket),
        (ANYWHERE, "tcp:", TlsSocket),
        ("tcp+plaintext:127.0.0.1:0", "", socket.socket),
        ("tcp+plaintext:0.0.0.0:0", "", socket.socket),
        ("tcp:0.0.0.0:0", "tcp:", TlsSocket),
    ],
)
def test_both_ends_speak_tls_if_the_keyring_has_credentials_and_plaintext_was_not_asked_for_by_name(
    listen, keys, address, prefix, kind
) -> None:
    keys(prefix, b"token", CREDENTIALS)
    listener = listen(address)

    there = listener.address.replace("0.0.0.0", "127.0.0.1")
    assert exchange(listener, there) == (kind, b"question")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_is_spoken_too(listen) -> None:
    try:
        listener = listen("tcp:[::1]:0")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    assert exchange(listener) == (socket.socket, b"question")


def test_one_server_listens_at_an_address_though_old_connections_linger(listen) -> None:
    first = listen(ANYWHERE)
    with pytest.raises(OSError, match="another server already listens on this address") as caught:
        tcp.TcpListener(first.address)
    assert caught.value.errno == errno.EADDRINUSE
    assert first.address in str(caught.value)

    client = tcp.connect(first.address, 10)
    server = accept(first)
    server.close()  # first, so that the lingering end is the server's
    client.close()
    first.close()

    assert listen(first.address).address == first.address


def test_a_server_without_clients_and_a_client_without_server_have_no_connection(listen) -> None:
    listener = listen(ANYWHERE)

    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        tcp.connect(listener.address, 10)


def test_a_client_that_has_gone_again_costs_nothing(listen) -> None:
    listener = listen(ANYWHERE)
    for _ in range(20):
        sock = socket.create_connection(listener.sock.getsockname())
        peer_liveness.cut(sock)
        sock.close()

    for _ in range(20):
        with contextlib.suppress(ConnectionError, BlockingIOError):
            listener.accept().close()

    with tcp.connect(listener.address, 10), accept(listener) as sock:
        assert sock.fileno() > 0


def test_nobody_goes_beyond_loopback_without_credentials_or_asking_for_plaintext_by_name() -> None:
    with pytest.raises(PermissionError) as caught:
        tcp.TcpListener("tcp:0.0.0.0:0")
    assert "ask for it by name: tcp+plaintext:0.0.0.0:0" in str(caught.value)
    assert "make_credentials()" in str(caught.value)

    with pytest.raises(PermissionError, match=r"tcp\+plaintext:192\.0\.2\.1:80"):
        tcp.connect("tcp:192.0.2.1:80", 1)


@pytest.fixture(params=["plaintext", "tls"])
def idle_pair(request: pytest.FixtureRequest, listen, keys) -> Iterator[tuple[Any, Any]]:
    """Client's and server's end of a connection on which nothing is expected."""
    if request.param == "tls":
        keys("tcp:", b"token", CREDENTIALS)
    listener = listen(ANYWHERE)

    def serve() -> Any:
        sock = accept(listener)
        sock.sendall(sock.recv(1))
        return sock

    accepted = in_background(serve)
    with tcp.connect(listener.address, 10) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        with accepted.result(10) as server:
            yield client, server


@pytest.mark.parametrize("act", [lambda sock: sock.close(), lambda sock: sock.sendall(b"what?")])
def test_a_connection_is_stale_if_closed_or_with_unexpected_bytes(idle_pair, act) -> None:
    client, server = idle_pair
    before = tcp.is_stale(client)

    act(server)
    assert select.select([client], [], [], 10)[0]

    assert not before
    assert tcp.is_stale(client)
    client.recv(2)
    assert tcp.is_stale(client)  # also with bytes that have been decrypted already


# At each look, half a second apart: (last ack ms, repeats, probes, timeouts).
@pytest.mark.parametrize(
    ("looks", "is_dead"),
    [
        ([(400, 0, 0, 0), (900, 1, 0, 0), (1900, 3, 0, 2), (2500, 4, 0, 3)], [False] * 3 + [True]),
        # It is silent because it is not asked.
        ([(400, 7, 0, 0), (60_000, 7, 0, 0)], [False] * 2),
        # It answers late.
        ([(400, 0, 0, 0), (2900, 1, 0, 1), (300, 2, 0, 0), (2900, 3, 0, 1)], [False] * 4),
        # Its window is full.
        ([(400, 0, 0, 0), (2500, 0, 1, 0), (3000, 0, 2, 0)], [False] * 2 + [True]),
        # It answers, though with nothing new, and is not asked after that.
        ([(400, 0, 0, 0), (1900, 3, 0, 3), (300, 4, 0, 4), (2800, 4, 0, 4)], [False] * 4),
        # Our own cable is out, so the kernel doesn't repeat anything.
        ([(400, 0, 0, 0), (1900, 1, 0, 2), (2500, 1, 0, 3)], [False] * 2 + [True]),
    ],
)
def test_a_peer_that_leaves_repeats_or_probes_unanswered_has_vanished(looks, is_dead) -> None:
    with socket.socket() as sock:
        silence = peer_liveness.PeerSilence(sock)

    assert [
        silence.is_dead(peer_liveness.Info(probes, ack_ms, repeats, timeouts), 500)
        for ack_ms, repeats, probes, timeouts in looks
    ] == is_dead
