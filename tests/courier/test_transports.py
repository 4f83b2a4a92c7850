"""What carriers do to the bytes of a connection, and who is at its other end, seen by whole clients."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier import keyring, transport
from launchpad.courier.caller import Peer
from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.security import certificates
from launchpad.courier.transport import stream_socket
from tests.courier.conftest import CREDENTIALS


def read(sock: stream_socket.Socket, size: int) -> bytes:
    sock.settimeout(10)
    return stream_socket.receive_exactly(sock, size)


def read_answers(sock: stream_socket.Socket, n: int) -> list[framing.Fields]:
    sock.settimeout(10)
    decoder, frames = framing.FrameDecoder(), []
    while len(frames) < n:
        received = sock.recv_into(decoder.buffer)
        assert received
        frames += decoder.received(received)
    return frames


# What arrives together.


@pytest.mark.parametrize("flags", [0, handshake.OVERLAP])
def test_calls_that_arrive_together_with_the_handshake_are_answered(
    serve, socket_address, flags
) -> None:
    server = serve(socket_address, m=lambda value: value)
    body = pickling.encode((("x",), {}))[0]
    calls = b"".join(framing.encode_small(framing.CALL, i, b"m", body) for i in (1, 2, 3))
    sock = transport.find(socket_address).connect(socket_address, 10)

    with contextlib.closing(sock):
        sock.sendall(handshake.encode_client_hello(server.token, Peer("me"), flags) + calls)
        server_hello = handshake.decode_server_hello(read(sock, handshake.SERVER_HELLO_SIZE))
        answers = read_answers(sock, 3)

    assert server_hello.status == handshake.ACCEPTED
    assert [frame[:2] for frame in answers] == [(framing.RESULT, i) for i in (1, 2, 3)]


def test_a_small_answer_that_arrives_together_with_a_large_one_is_not_left_lying(
    serve, connect, socket_address
) -> None:
    serve(socket_address, m=bytes)
    client = connect(socket_address, call_timeout=20)

    for size in range(130_500, 131_060, 10):  # as large as fits where a client receives
        futures = [client.futures.m(size), client.futures.m(1)]
        assert [len(future.result()) for future in futures] == [size, 1]


def test_large_arguments_and_results_cross_in_both_directions_at_once(
    serve, connect, socket_address
) -> None:
    serve(socket_address, echo=lambda value: value)
    client = connect(socket_address, call_timeout=20)
    values = [bytes([i]) * 3_000_000 for i in range(8)]

    futures = [client.futures.echo(value) for value in values]
    one_by_one = [client.echo(value) for value in values]

    assert one_by_one == values
    assert [future.result() for future in futures] == values


# A network that stops in the middle of something.


class Relay:
    """Passes bytes on between a client and a server; can keep back the end of what the server says."""

    def __init__(self, there: str) -> None:
        self._there = there
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self.keeps_back = 0  # bytes
        self.is_closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        self.is_closing.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, *work: Any) -> None:
        self._threads.append(threading.Thread(target=work[0], args=work[1:]))
        self._threads[-1].start()

    def _accept(self) -> None:
        while not self.is_closing.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                self._start(self._pass_on, self._listener.accept()[0])

    def _pass_on(self, client: socket.socket) -> None:
        host, port = self._there.rsplit(":", 2)[-2:]
        with (
            client,
            socket.create_connection((host, int(port))) as server,
            contextlib.suppress(ConnectionError),  # one end has closed with something unread
        ):
            while not self.is_closing.is_set():
                for sock in select.select([client, server], [], [], 0.02)[0]:
                    data = sock.recv(1 << 20)
                    if not data:
                        return
                    if sock is client:
                        server.sendall(data)
                    else:
                        client.sendall(data[: len(data) - self.keeps_back])


@pytest.fixture
def relay() -> Iterator[Callable[[str], Relay]]:
    with contextlib.ExitStack() as stack:

        def start(there: str) -> Relay:
            made = Relay(there)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture(params=["tcp", "tls"])
def tcp_or_tls_address(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_address")
    return found


@pytest.mark.parametrize("kept_back", [1, 20])
def test_a_deadline_is_kept_although_half_an_answer_has_arrived(
    serve, connect, relay, tcp_or_tls_address, kept_back
) -> None:
    server = serve(tcp_or_tls_address, m=lambda: 1)
    between = relay(tcp_or_tls_address)
    client = connect(between.address, token=server.token)
    assert [client.m(), client.futures.m().result(10)] == [1, 1]
    quick = client.with_options(timeout_s=0.3)

    between.keeps_back = kept_back
    began = time.monotonic()
    future = quick.futures.m()
    with pytest.raises(courier.DeadlineExceeded):
        quick.m()
    with pytest.raises(courier.DeadlineExceeded):
        future.result(10)

    assert time.monotonic() - began < 5


# One side speaks TLS, and the other does not, or for another run.


@contextlib.contextmanager
def credentials(found: Any) -> Iterator[None]:
    keyring.add("tcp:", b"", found)
    try:
        yield
    finally:
        keyring.remove("tcp:")


def errors_of(client: Any) -> list[Exception]:
    """Of a call that waits, and of one that does not."""
    with pytest.raises(courier.CourierError) as caught:
        client.m()
    return [caught.value, client.futures.m().exception(10)]


def test_a_client_with_credentials_is_told_that_the_server_has_none(
    serve, connect, tcp_address
) -> None:
    serve(tcp_address, m=lambda: 1)

    with credentials(CREDENTIALS):
        errors = errors_of(connect(tcp_address))

    assert [type(error) for error in errors] == [ProtocolError] * 2
    assert "does not speak TLS" in str(errors[0])
    assert "has no credentials for that address in its keyring" in str(errors[0])
    assert connect(tcp_address).m() == 1


def test_a_client_without_credentials_is_told_that_the_server_wants_tls(
    serve, connect, tcp_address
) -> None:
    with credentials(CREDENTIALS):
        serve(tcp_address, m=lambda: 1)

    errors = errors_of(connect(tcp_address))

    assert [type(error) for error in errors] == [courier.Refused] * 2
    assert "wants TLS" in str(errors[0])
    assert "keyring.add(prefix, token, credentials)" in str(errors[0])
    with credentials(CREDENTIALS):
        assert connect(tcp_address).m() == 1


def test_a_client_with_credentials_of_another_run_is_told_so(serve, connect, tcp_address) -> None:
    with credentials(CREDENTIALS):
        serve(tcp_address, m=lambda: 1)

    with credentials(certificates.make_credentials()):
        errors = errors_of(connect(tcp_address))

    assert [type(error) for error in errors] == [courier.Refused] * 2
    assert "a certificate of another run" in str(errors[0])
    assert isinstance(errors[0], courier.NotSent)


def test_the_address_of_an_error_has_the_port_that_the_system_has_chosen(serve, connect) -> None:
    server = serve("tcp:127.0.0.1:0", m=lambda: 1)
    client = connect(server.address)

    with pytest.raises(courier.MethodNotFound) as caught:
        client.no_such_method()

    assert server.address != "tcp:127.0.0.1:0"
    assert f"({server.address}) has no method 'no_such_method'" in str(caught.value)
