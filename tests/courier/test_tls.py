"""A TlsSocket behaves as the socket that it wraps, and lets nobody in who is not of the run."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import stream_socket, tls, tls_context
from launchpad.courier.transport.tls import TlsSocket

BUILTIN_PREFIX = certificates.make_credentials()
THEIRS = certificates.make_credentials()
# Of another run, though it believes in ours: only our server can tell.
INTRUDER = Credentials(BUILTIN_PREFIX.ca_pem, THEIRS.cert_pem, THEIRS.key_pem)

Pair = tuple[TlsSocket, TlsSocket]
DONTWAIT = socket.MSG_DONTWAIT


def run(fn: Callable[..., Any], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=fn, args=args)
    thread.start()
    return thread


def wait_readable(sock: TlsSocket | socket.socket) -> None:
    assert select.select([sock], [], [], 10)[0]


def read_patiently(sock: TlsSocket, n: int) -> bytes:
    """As a server does it: without blocking in a read."""
    while True:
        with contextlib.suppress(BlockingIOError):
            return sock.recv(n, DONTWAIT)
        wait_readable(sock)


def read_all(sock: socket.socket | TlsSocket) -> bytes:
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname(), 10)
        other, _ = listener.accept()
    one.settimeout(None)
    for sock in (one, other):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


@pytest.fixture(params=[socket.socketpair, tcp_pair], ids=["unix", "tcp"])
def raw_pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = request.param()
    with one, other:
        yield one, other


@pytest.fixture
def pair(raw_pair: tuple[socket.socket, socket.socket]) -> Iterator[Pair]:
    """Client's and server's end of one connection; they have said hello to each other."""
    with make_pair(*raw_pair) as ends:
        yield ends


@contextlib.contextmanager
def make_pair(one: socket.socket, other: socket.socket) -> Iterator[Pair]:
    server = tls.accept(other, BUILTIN_PREFIX)
    received: list[bytes] = []
    thread = run(lambda: received.append(read_patiently(server, 5)))
    with server, tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", None) as client:
        client.sendall(b"hello")
        thread.join(10)
        assert received == [b"hello"]
        server.sendall(b"welcome")
        assert client.recv(7) == b"welcome"
        yield client, server


def handshake(raw: socket.socket, credentials: Credentials) -> None:
    with tls.connect(raw, credentials, "tcp:here:1", None) as sock:
        sock.sendall(b"greeting")
        sock.recv(1)


def meet(client: Credentials, server: Credentials) -> tuple[BaseException, BaseException, bytes]:
    """What either side hears of the other's certificate, and what the server read before."""
    one, other = tcp_pair()
    ends: list[Any] = [None, b""]

    def serve() -> None:
        with tls.accept(other, server) as sock:
            try:
                ends[1] = read_patiently(sock, 100)
            except OSError as error:
                ends[0] = error

    thread = run(serve)
    with pytest.raises(courier.CourierError) as caught:
        handshake(one, client)
    thread.join(10)
    return caught.value, ends[0], ends[1]


def test_both_sides_read_what_the_other_has_sent(pair) -> None:
    client, server = pair

    client.sendall(b"question")
    question = server.recv(100)
    server.sendall(b"answer")

    assert (question, client.recv(100)) == (b"question", b"answer")


def test_only_tls_1_3_is_spoken_and_both_certificates_are_asked_for() -> None:
    for is_server in (False, True):
        context = tls_context.make(BUILTIN_PREFIX, is_server=is_server)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_a_client_that_speaks_an_older_version_is_refused(raw_pair) -> None:
    one, other = raw_pair
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = tls.accept(other, BUILTIN_PREFIX)
    refusals: list[BaseException] = []

    def connect() -> None:
        with pytest.raises(ssl.SSLError) as caught:
            context.wrap_socket(one)
        refusals.append(caught.value)

    thread = run(connect)
    with pytest.raises(ConnectionAbortedError):
        read_patiently(server, 1)
    server.close()
    thread.join(10)

    assert "PROTOCOL_VERSION" in str(refusals[0]).upper().replace(" ", "_")


# Who belongs to the run.


def test_a_server_of_another_run_is_refused_before_anything_is_sent() -> None:
    refusal, reason, read = meet(BUILTIN_PREFIX, THEIRS)

    assert isinstance(refusal, courier.Refused)
    assert "certificate of another run" in str(refusal)
    assert "keyring.add" in str(refusal)
    assert refusal.address == "tcp:here:1"
    assert "it is of another run" in str(reason)
    assert read == b""


def test_a_client_of_another_run_is_refused_before_anything_of_it_is_read() -> None:
    # Often, because the client may be anywhere between its greeting and its answer by then.
    for _ in range(50):
        refusal, reason, read = meet(INTRUDER, BUILTIN_PREFIX)

        assert isinstance(refusal, courier.Refused), repr(refusal)
        assert "refuses our certificate" in str(refusal)
        assert "certificate of another run" in str(reason)
        assert read == b""


def test_a_client_without_a_certificate_is_refused(raw_pair) -> None:
    one, other = raw_pair
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=BUILTIN_PREFIX.ca_pem.decode())
    server = tls.accept(other, BUILTIN_PREFIX)
    refusals: list[BaseException] = []

    def connect() -> None:
        with context.wrap_socket(one) as sock:
            try:
                sock.recv(1)
            except OSError as error:
                refusals.append(error)

    thread = run(connect)
    with pytest.raises(ConnectionAbortedError):
        read_patiently(server, 1)
    server.close()
    thread.join(10)

    assert len(refusals) == 1


def test_a_certificate_that_has_expired_points_at_the_clocks(monkeypatch) -> None:
    monkeypatch.setattr(certificates, "_DAYS_AFTER", -0.5)
    old = certificates.make_credentials()

    refusal, _, _ = meet(old, old)

    assert isinstance(refusal, courier.Refused)
    assert "Compare the clocks" in str(refusal)


# What else may be at the other end.


@pytest.mark.parametrize(
    "noise",
    [b"LPC1" + bytes(400), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\x00" + b"\xff" * 16384]
    + [random.Random(seed).randbytes(4000) for seed in range(20)],
)
def test_noise_instead_of_a_handshake_ends_the_connection(raw_pair, noise) -> None:
    one, other = raw_pair
    server = tls.accept(other, BUILTIN_PREFIX)

    one.sendall(noise)
    one.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        read_patiently(server, 1)
    with contextlib.suppress(ConnectionResetError):
        other.recv(65536, DONTWAIT)  # what is left unread would reset the connection
    server.close()

    assert read_all(one)[:1] in (b"\x15", b"")  # an alert, unless the noise began like a client


def test_a_client_that_speaks_no_tls_hears_an_alert(raw_pair) -> None:
    one, other = raw_pair
    with tls.accept(other, BUILTIN_PREFIX) as server:
        one.sendall(b"LPC1" + bytes(200))
        with pytest.raises(ConnectionAbortedError, match="does not speak TLS"):
            read_patiently(server, 1)

    assert read_all(one) == tls.NOT_TLS


def test_a_server_that_speaks_no_tls_is_named_as_such(raw_pair) -> None:
    one, other = raw_pair
    other.sendall(b"220 smtp ready\r\n")

    with pytest.raises(courier.ProtocolError, match="does not speak TLS") as caught:
        tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", None)

    assert caught.value.address == "tcp:here:1"


def test_a_server_that_answers_a_handshake_with_our_alert_is_named_as_such(raw_pair) -> None:
    one, other = raw_pair
    other.sendall(tls.NOT_TLS)

    with pytest.raises(courier.ProtocolError, match="does not speak TLS"):
        tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", None)


def test_a_server_that_says_nothing_is_waited_for_until_the_deadline(raw_pair) -> None:
    import time

    one, _ = raw_pair

    with pytest.raises(TimeoutError):
        tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", time.monotonic() + 0.05)

    assert one.fileno() == -1


def test_a_server_that_closes_is_not_up(raw_pair) -> None:
    one, other = raw_pair
    other.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionResetError):
        tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", None)


def test_hands_are_shaken_byte_by_byte_without_blocking() -> None:
    one, near = socket.socketpair()
    far, other = socket.socketpair()
    server = tls.accept(other, BUILTIN_PREFIX)

    def handshake() -> None:
        with tls.connect(one, BUILTIN_PREFIX, "tcp:here:1", None) as client:
            client.sendall(b"hello")

    def relay() -> None:
        for byte in iter(lambda: far.recv(1), b""):
            near.sendall(byte)

    threads = [run(handshake), run(relay)]
    received, n_waits = b"", 0
    while not received:
        far.sendall(near.recv(1))
        try:
            received = server.recv(100, DONTWAIT)
        except BlockingIOError:
            n_waits += 1
    far.shutdown(socket.SHUT_RDWR)
    server.close()
    for end in (*threads, near, far):
        end.join(10) if isinstance(end, threading.Thread) else end.close()

    assert received == b"hello"
    assert n_waits > 500


# Many threads, all sizes.


SIZES = [1, 2, 100, 16383, 16384, 16385, 65535, 65536, 65537, 1 << 20]
BLOCK = random.Random(1).randbytes(1 << 20)


def message_sizes(seed: int, n: int) -> Iterator[int]:
    """Small ones mostly, up to 1 MB."""
    rng = random.Random(seed)
    return itertools.chain(SIZES, (int(2 ** rng.uniform(0, 16.6)) for _ in range(n - len(SIZES))))


def write_messages(sock: TlsSocket, seed: int, n: int) -> None:
    for i, size in enumerate(message_sizes(seed, n)):
        data = memoryview(BLOCK)[:size]
        if i % 3:
            sock.sendall(data)
        else:
            third = size // 3
            stream_socket.send_all(sock, [data[:third], data[third : 2 * third], data[2 * third :]])


def read_messages(sock: TlsSocket, seed: int, n: int, wrong: list[int]) -> None:
    rng = random.Random(seed + 100)
    buffer = memoryview(bytearray(1 << 20))
    for i, size in enumerate(message_sizes(seed, n)):
        done = 0
        while done < size:
            room = min(size - done, rng.choice((1, 300, 20_000, 1 << 20)))
            got = sock.recv_into(buffer[done : done + room])
            if not got:
                wrong.append(i)
                return
            done += got
        if buffer[:size] != BLOCK[:size]:
            wrong.append(i)


def test_ten_thousand_messages_each_way_arrive_intact_while_both_sides_read_and_write(pair) -> None:
    wrong: list[int] = []
    threads = []
    for end, own, others in zip(pair, (1, 2), (2, 1), strict=True):
        threads.append(run(write_messages, end, own, 10_000))
        threads.append(run(read_messages, end, others, 10_000, wrong))

    for thread in threads:
        thread.join(100)

    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_several_threads_write_to_one_connection_and_no_message_is_torn(pair) -> None:
    client, server = pair

    def write(i: int) -> None:
        for _ in range(500):
            client.sendall(bytes([i]) * 100)

    threads = [run(write, i) for i in range(8)]
    data = bytearray(8 * 500 * 100)
    n = server.recv_into(data, 0, socket.MSG_WAITALL)
    for thread in threads:
        thread.join(10)

    assert n == len(data)
    assert all(len(set(data[i : i + 100])) == 1 for i in range(0, n, 100))


def test_one_thread_sends_while_another_waits_to_receive(pair) -> None:
    client, server = pair
    received: list[bytes] = []
    waiting = run(lambda: received.append(client.recv(10)))

    client.sendall(b"request")
    request = server.recv(10)
    server.sendall(b"answer")
    waiting.join(10)

    assert (request, received) == (b"request", [b"answer"])


# Limits: what was sent is known to the byte.


def drain(sock: TlsSocket, digest: Any) -> int:
    n = 0
    with contextlib.suppress(BlockingIOError):
        while chunk := sock.recv(50_000, DONTWAIT):
            digest.update(chunk)
            n += len(chunk)
    return n


def fill(sock: TlsSocket, data: memoryview) -> int:
    """Sends until the socket takes no more."""
    n = 0
    with contextlib.suppress(BlockingIOError):
        while n < len(data):
            n += sock.send(data[n:], DONTWAIT)
    return n


@pytest.fixture
def narrow_pair() -> Iterator[Pair]:
    """A connection that takes a few kilobytes, and what it has taken can be read at once."""
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    with make_pair(one, other) as ends:
        yield ends


def test_what_counts_as_sent_is_exactly_what_the_peer_can_read(narrow_pair) -> None:
    # Neither less (a call would be made twice) nor more (a call would be lost).
    client, server = narrow_pair
    data = memoryview(BLOCK)[:777_777]
    digest = hashlib.sha256()
    sent = read = n_short = 0

    while sent < len(data):
        sent += fill(client, data[sent:])
        n_short += sent < len(data)
        read += drain(server, digest)
        assert read == sent

    assert digest.digest() == hashlib.sha256(data).digest()
    assert n_short > 10


def test_what_had_left_when_a_send_failed_counts_as_sent(pair) -> None:
    client, server = pair
    client.raw, raw = _Failing(client.raw, 16_500), client.raw

    sent = client.send(BLOCK[:50_000])
    client.raw = raw

    assert sent == 16_384
    assert read_all(server) == BLOCK[:16_384]
    with pytest.raises(OSError):  # noqa: PT011  # which one is the system's choice
        client.send(BLOCK[16_384:50_000])


class _Failing:
    """Takes so many bytes, then the peer is gone."""

    def __init__(self, raw: socket.socket, n: int) -> None:
        self._raw = raw
        self._n = n
        self.shutdown = raw.shutdown
        self.recv_into = raw.recv_into

    def send(self, data: memoryview, flags: int = 0) -> int:
        if not self._n:
            raise BrokenPipeError
        n, self._n = self._n, 0
        return self._raw.send(data[:n])


def test_a_send_that_was_cut_short_by_a_limit_is_gone_on_with(narrow_pair) -> None:
    client, server = narrow_pair
    stream_socket.set_timeouts(client, 0.01)
    data = memoryview(BLOCK)[:200_000]
    digest = hashlib.sha256()
    sent = n_late = 0

    while sent < len(data):
        try:
            sent += client.send(data[sent:])
        except BlockingIOError:
            n_late += 1
            drain(server, digest)
    drain(server, digest)

    assert digest.digest() == hashlib.sha256(data).digest()
    assert n_late > 0


def test_sending_something_else_after_a_short_send_is_a_mistake(narrow_pair) -> None:
    client, _ = narrow_pair
    fill(client, memoryview(BLOCK))

    with pytest.raises(ValueError, match="send the rest of that data"):
        client.send(b"else", DONTWAIT)


def test_a_receive_that_was_cut_short_by_a_limit_is_gone_on_with(pair) -> None:
    client, server = pair
    stream_socket.set_receive_timeout(client, 0.01)

    with pytest.raises(BlockingIOError):
        client.recv(10)
    stream_socket.set_receive_timeout(client, 0)
    server.sendall(b"late")

    assert client.recv(10) == b"late"


def test_half_a_record_is_no_data_yet(pair) -> None:
    client, server = pair
    client.raw, relayed = _Recording(client.raw), client.raw
    client.sendall(b"whole")
    record = bytes(client.raw.sent)

    relayed.send(record[:9])
    wait_readable(server)
    with pytest.raises(BlockingIOError):
        server.recv(10, DONTWAIT)
    is_pending = server.pending()
    relayed.send(record[9:])

    assert not is_pending
    assert server.recv(10) == b"whole"


class _Recording:
    """Sends nothing, and remembers it."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.sent = bytearray()

    def send(self, data: bytes, flags: int = 0) -> int:
        self.sent += data
        return len(data)

    def close(self) -> None:
        self._raw.close()


def test_decrypted_bytes_are_pending_while_the_raw_socket_is_silent(pair) -> None:
    client, server = pair
    client.sendall(b"first")
    client.sendall(b"second")
    wait_readable(server)

    before = server.pending()
    first = server.recv(3)
    is_silent = not select.select([server], [], [], 0)[0]
    between = server.pending()
    rest = server.recv(100)
    while len(rest) < 8:
        rest += server.recv(100)

    assert (before, first, rest) == (False, b"fir", b"stsecond")
    assert is_silent
    assert between
    assert not server.pending()


def test_waiting_for_all_waits_for_all(pair) -> None:
    client, server = pair
    buffer = bytearray(300_000)
    thread = run(lambda: [client.sendall(BLOCK[i : i + 1000]) for i in range(0, 300_000, 1000)])

    n = server.recv_into(buffer, 0, socket.MSG_WAITALL)
    thread.join(10)

    assert (n, bytes(buffer)) == (300_000, BLOCK[:300_000])


def test_waiting_for_all_returns_what_there_is_at_the_limit(pair) -> None:
    client, server = pair
    stream_socket.set_receive_timeout(server, 0.02)
    client.sendall(b"part")
    wait_readable(server)

    n = server.recv_into(bytearray(10), 0, socket.MSG_WAITALL)

    assert n == 4


# The end.


def test_the_end_of_one_side_is_the_end_of_the_stream_for_the_other(pair) -> None:
    client, server = pair
    client.sendall(b"last words")
    client.close()

    assert read_all(server) == b"last words"
    assert server.recv(1) == b""


def test_a_stream_that_ends_in_the_middle_of_a_record_just_ends(pair) -> None:
    client, server = pair
    client.raw, raw = _Recording(client.raw), client.raw
    client.sendall(b"cut short")
    raw.send(bytes(client.raw.sent[:-1]))
    raw.shutdown(socket.SHUT_WR)

    assert read_all(server) == b""


def test_a_record_that_was_tampered_with_breaks_the_connection_and_is_never_data(pair) -> None:
    client, server = pair
    client.raw, raw = _Recording(client.raw), client.raw
    client.sendall(b"pay 1 to the bearer")
    record = bytearray(client.raw.sent)
    record[12] ^= 1
    raw.send(record)

    with pytest.raises(ConnectionAbortedError):
        server.recv(100)


def test_a_reader_is_woken_when_its_own_side_hangs_up(pair) -> None:
    client, _ = pair
    received: list[bytes] = []
    thread = run(lambda: received.append(client.recv(1)))

    client.shutdown(socket.SHUT_RDWR)
    thread.join(10)

    assert received == [b""]


def test_closing_does_not_wait_for_a_writer_that_is_stuck(narrow_pair) -> None:
    client, _ = narrow_pair
    fill(client, memoryview(BLOCK))
    stuck = run(_send_quietly, client)

    client.shutdown(socket.SHUT_RDWR)  # as everywhere: closing alone wakes nobody
    client.close()
    stuck.join(10)

    assert not stuck.is_alive()


def _send_quietly(sock: TlsSocket) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(BLOCK)


def test_an_interrupted_send_cuts_the_connection_rather_than_to_garble_it(pair) -> None:
    client, server = pair
    client.raw, raw = _Interrupted(client.raw), client.raw

    with pytest.raises(KeyboardInterrupt):
        client.sendall(b"x" * 1000)
    client.raw = raw

    with pytest.raises(OSError):  # noqa: PT011  # which one is the system's choice
        client.sendall(b"y")
    assert read_all(server) == b""


class _Interrupted:
    """Ctrl-C arrives when half of it is on its way."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.shutdown = raw.shutdown

    def send(self, data: memoryview, flags: int = 0) -> int:
        self._raw.send(data[: len(data) // 2])
        raise KeyboardInterrupt


def test_a_forked_child_that_closes_its_copy_says_nothing_to_the_peer(pair) -> None:
    client, server = pair
    pid = os.fork()
    if not pid:
        client.close()
        os._exit(0)
    os.waitpid(pid, 0)

    client.sendall(b"still here")

    assert server.recv(100) == b"still here"


def test_options_are_those_of_the_raw_socket(pair) -> None:
    client, _ = pair

    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))

    assert client.raw.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("@ii", 1, 0)
    assert client.fileno() == client.raw.fileno()
