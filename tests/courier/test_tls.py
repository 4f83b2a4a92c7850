"""A TlsSocket behaves as the socket that it wraps, and lets nobody in who is not of the run."""

from __future__ import annotations

import contextlib
import hashlib
import random
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import stream_socket, tls, tls_context
from launchpad.courier.transport.tls import RECORD, RECORD_OVERHEAD, PendingCiphertext, TlsSocket
from tests.courier.conftest import exit_code_of_child, in_background

OURS = certificates.make_credentials()
THEIRS = certificates.make_credentials()
# Of another run, though it believes in ours: only our server can tell.
INTRUDER = Credentials(OURS.ca_pem, THEIRS.cert_pem, THEIRS.key_pem)

Pair = tuple[TlsSocket, TlsSocket]
DONTWAIT = socket.MSG_DONTWAIT
WHOLE_RECORD = RECORD + RECORD_OVERHEAD


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


@pytest.fixture
def raw_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = tcp_pair()
    with one, other:
        yield one, other


@pytest.fixture
def pair(raw_pair: tuple[socket.socket, socket.socket]) -> Iterator[Pair]:
    """Client's and server's end of one connection; they have said hello to each other."""
    with make_pair(*raw_pair) as ends:
        yield ends


@contextlib.contextmanager
def make_pair(one: socket.socket, other: socket.socket) -> Iterator[Pair]:
    server = tls.accept(other, OURS)
    greeting = in_background(read_patiently, server, 5)
    with server, tls.connect(one, OURS, "tcp:here:1", None) as client:
        client.sendall(b"hello")
        assert greeting.result(10) == b"hello"
        server.sendall(b"welcome")
        assert client.recv(7) == b"welcome"
        yield client, server


def meet(client: Credentials, server: Credentials) -> tuple[Any, Any]:
    """What either side hears of the other's certificate; the server has read nothing then."""
    one, other = tcp_pair()

    def serve() -> None:
        with tls.accept(other, server) as sock:
            read_patiently(sock, 100)

    def call() -> None:
        with tls.connect(one, client, "tcp:here:1", None) as sock:
            sock.sendall(b"greeting")
            sock.recv(1)

    serving, calling = in_background(serve), in_background(call)
    return calling.exception(10), serving.exception(10)


class Tapped:
    """A raw socket of which only `send` is another one."""

    def __init__(self, raw: socket.socket, send: Callable[..., int]) -> None:
        self.send = send
        self.shutdown = raw.shutdown
        self.recv_into = raw.recv_into


@contextlib.contextmanager
def tapped(client: TlsSocket, send: Callable[..., int]) -> Iterator[socket.socket]:
    raw = client.raw
    client.raw = Tapped(raw, send)  # type: ignore[assignment]
    try:
        yield raw
    finally:
        client.raw = raw


def encrypt(client: TlsSocket, data: bytes) -> bytearray:
    """What would be sent of `data`, and is not."""
    record = bytearray()

    def keep(data: bytes, flags: int = 0) -> int:
        record.extend(data)
        return len(data)

    with tapped(client, keep):
        client.sendall(data)
    return record


def test_only_tls_1_3_is_spoken_and_both_certificates_are_asked_for() -> None:
    for is_server in (False, True):
        context = tls_context.make(OURS, is_server=is_server)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED


# Who belongs to the run.


def test_a_server_of_another_run_is_refused_before_anything_is_sent() -> None:
    refusal, reason = meet(OURS, THEIRS)

    assert isinstance(refusal, courier.Refused)
    assert "certificate of another run" in str(refusal)
    assert "keyring.add" in str(refusal)
    assert refusal.address == "tcp:here:1"
    assert "it is of another run" in str(reason)


def test_a_client_of_another_run_is_refused_before_anything_of_it_is_read() -> None:
    # Often, because the client may be anywhere between its greeting and its answer by then.
    for _ in range(50):
        refusal, reason = meet(INTRUDER, OURS)

        assert isinstance(refusal, courier.Refused), repr(refusal)
        assert "refuses our certificate" in str(refusal)
        assert "certificate of another run" in str(reason)


@pytest.mark.parametrize(
    ("version", "reason"), [(ssl.TLSVersion.TLSv1_3, ""), (ssl.TLSVersion.TLSv1_2, "VERSION")]
)
def test_a_client_without_a_certificate_or_of_an_older_version_is_refused(
    raw_pair, version: ssl.TLSVersion, reason: str
) -> None:
    one, other = raw_pair
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=OURS.ca_pem.decode())
    context.maximum_version = version
    server = tls.accept(other, OURS)

    def connect() -> None:
        with context.wrap_socket(one) as sock:
            sock.recv(1)

    refused = in_background(connect)
    with pytest.raises(ConnectionAbortedError):
        read_patiently(server, 1)
    server.close()

    with pytest.raises(OSError, match=f"(?i){reason}"):
        refused.result(10)


def test_a_certificate_that_has_expired_points_at_the_clocks(monkeypatch) -> None:
    monkeypatch.setattr(certificates, "_DAYS_AFTER", -0.5)
    old = certificates.make_credentials()

    refusal, _ = meet(old, old)

    assert isinstance(refusal, courier.Refused)
    assert "Compare the clocks" in str(refusal)


# What else may be at the other end.


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\x00" + b"\xff" * 16384]
    + [random.Random(seed).randbytes(4000) for seed in range(4)],
)
def test_noise_instead_of_a_handshake_ends_the_connection(raw_pair, noise) -> None:
    one, other = raw_pair
    server = tls.accept(other, OURS)

    one.sendall(noise)
    one.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        read_patiently(server, 1)
    with contextlib.suppress(ConnectionResetError):
        other.recv(65536, DONTWAIT)  # what is left unread would reset the connection
    server.close()

    assert read_all(one)[:1] in (b"\x15", b"")  # an alert, unless the noise began like a client


@pytest.mark.parametrize("answer", [b"220 smtp ready\r\n", tls.NOT_TLS])
def test_a_server_that_speaks_no_tls_is_named_as_such(raw_pair, answer: bytes) -> None:
    one, other = raw_pair
    other.sendall(answer)

    with pytest.raises(courier.ProtocolError, match="does not speak TLS") as caught:
        tls.connect(one, OURS, "tcp:here:1", None)

    assert caught.value.address == "tcp:here:1"


@pytest.mark.parametrize("closes", [False, True])
def test_a_server_that_says_nothing_is_waited_for_until_the_deadline(raw_pair, closes) -> None:
    one, other = raw_pair
    error = TimeoutError
    if closes:
        other.shutdown(socket.SHUT_WR)
        error = ConnectionResetError

    with pytest.raises(error):
        tls.connect(one, OURS, "tcp:here:1", time.monotonic() + 0.05)

    assert one.fileno() == -1


def test_hands_are_shaken_byte_by_byte_without_blocking() -> None:
    one, near = socket.socketpair()
    far, other = socket.socketpair()
    server = tls.accept(other, OURS)

    def handshake() -> None:
        with tls.connect(one, OURS, "tcp:here:1", None) as client:
            client.sendall(b"hello")

    def relay() -> None:
        for byte in iter(lambda: far.recv(1), b""):
            near.sendall(byte)

    threads = [in_background(handshake), in_background(relay)]
    received, n_waits = b"", 0
    while not received:
        far.sendall(near.recv(1))
        try:
            received = server.recv(100, DONTWAIT)
        except BlockingIOError:
            n_waits += 1
    far.shutdown(socket.SHUT_RDWR)
    server.close()
    for thread in threads:
        thread.result(10)
    near.close()
    far.close()

    assert received == b"hello"
    assert n_waits > 500


BLOCK = random.Random(1).randbytes(1 << 20)
SIZES = [1, 2, 100, 16383, 16384, 16385, 262143, 262144, 262145, 1 << 20]
SIZES += [int(2 ** random.Random(i).uniform(0, 16.6)) for i in range(1000)]


def write_messages(sock: TlsSocket) -> None:
    for i, size in enumerate(SIZES):
        data = memoryview(BLOCK)[:size]
        if i % 3:
            sock.sendall(data)
        else:
            third = size // 3
            stream_socket.send_all(sock, [data[:third], data[third : 2 * third], data[2 * third :]])


def read_messages(sock: TlsSocket) -> None:
    rng = random.Random(100)
    buffer = memoryview(bytearray(1 << 20))
    for size in SIZES:
        done = 0
        while done < size:
            room = min(size - done, rng.choice((1, 300, 20_000, 1 << 20)))
            received = sock.recv_into(buffer[done : done + room])
            assert received
            done += received
        assert buffer[:size] == BLOCK[:size]


def test_a_thousand_messages_each_way_arrive_intact_while_both_sides_read_and_write(pair) -> None:
    threads = [in_background(work, end) for end in pair for work in (write_messages, read_messages)]

    for thread in threads:
        thread.result(100)


def test_several_threads_write_to_one_connection_and_no_message_is_torn(pair) -> None:
    client, server = pair

    def write(i: int) -> None:
        for _ in range(500):
            client.sendall(bytes([i]) * 100)

    threads = [in_background(write, i) for i in range(8)]
    data = bytearray(8 * 500 * 100)
    n = server.recv_into(data, 0, socket.MSG_WAITALL)
    for thread in threads:
        thread.result(10)

    assert n == len(data)
    assert all(len(set(data[i : i + 100])) == 1 for i in range(0, n, 100))


# Limits: what was sent is known to the byte.


def drain(sock: TlsSocket, digest: Any) -> int:
    n = 0
    with contextlib.suppress(BlockingIOError):
        while chunk := sock.recv(50_000, DONTWAIT):
            digest.update(chunk)
            n += len(chunk)
    return n


def fill(sock: TlsSocket, data: memoryview) -> None:
    """Sends until the socket takes no more."""
    with contextlib.suppress(BlockingIOError):
        while data:
            data = data[sock.send(data, DONTWAIT) :]


@pytest.fixture
def narrow_pair() -> Iterator[Pair]:
    """A connection that takes a few kilobytes, and what it has taken can be read at once."""
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    with make_pair(one, other) as ends:
        yield ends


@pytest.mark.parametrize("flags", [DONTWAIT, 0])
def test_what_counts_as_sent_is_exactly_what_the_peer_can_read(narrow_pair, flags: int) -> None:
    # Neither less (a call would be made twice) nor more (a call would be lost).
    client, server = narrow_pair
    stream_socket.set_timeouts(client, 0.01)
    data = memoryview(BLOCK)[:600_000]
    digest = hashlib.sha256()
    sent = read = n_short = 0

    while sent < len(data):
        try:
            sent += client.send(data[sent:], flags)
        except BlockingIOError:
            n_short += 1
            read += drain(server, digest)
            assert read == sent
    read += drain(server, digest)

    assert (read, digest.digest()) == (sent, hashlib.sha256(data).digest())
    assert n_short > 0


def test_what_had_left_when_a_send_failed_counts_as_sent(pair) -> None:
    client, server = pair
    room = [16_500]

    def take_some(data: memoryview, flags: int = 0) -> int:
        if not room:
            raise BrokenPipeError
        return raw.send(data[: room.pop()])

    with tapped(client, take_some) as raw:
        sent = client.send(BLOCK[:50_000])

    assert sent == 16_384
    assert read_all(server) == BLOCK[:16_384]
    with pytest.raises(OSError):  # noqa: PT011  # which one is the system's choice
        client.send(BLOCK[16_384:50_000])


@pytest.mark.parametrize("n_before", [0, 27])
def test_only_whole_records_count_as_gone_and_each_once(n_before: int) -> None:
    sealed = PendingCiphertext(
        bytes(n_before + 2 * WHOLE_RECORD + 100 + RECORD_OVERHEAD), 2 * RECORD + 100
    )
    before = sealed.n_unreported

    told = []
    for n in (n_before + WHOLE_RECORD - 1, 1, WHOLE_RECORD - 1, 1, 100 + RECORD_OVERHEAD - 1, 1):
        sealed.advance(n)
        told.append(sealed.report_sent())

    assert told == [0, RECORD, 0, RECORD, 0, 100]
    assert before == 2 * RECORD + 100
    assert (sealed.report_sent(), sealed.n_unreported) == (0, 0)


def test_what_tls_says_for_itself_is_none_of_the_callers_data() -> None:
    sealed = PendingCiphertext(bytes(30))

    sealed.advance(10)

    assert (sealed.report_sent(), sealed.n_unreported, len(sealed.rest)) == (0, 0, 20)


def test_sending_something_else_after_a_short_send_is_a_mistake(narrow_pair) -> None:
    client, _ = narrow_pair
    fill(client, memoryview(BLOCK))

    with pytest.raises(ValueError, match="send the rest of that data"):
        client.send(b"else", DONTWAIT)


def test_half_a_record_is_no_data_yet_and_the_rest_may_come_after_a_limit(pair) -> None:
    client, server = pair
    record = encrypt(client, b"whole")
    stream_socket.set_receive_timeout(server, 0.01)

    for part in (b"", record[:9]):
        client.raw.send(part)
        for flags in (0, DONTWAIT):
            with pytest.raises(BlockingIOError):
                server.recv(10, flags)
    is_pending = server.pending()
    stream_socket.set_receive_timeout(server, 0)
    client.raw.send(record[9:])

    assert not is_pending
    assert server.recv(10) == b"whole"


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


def test_waiting_for_all_waits_for_all_unless_the_limit_comes_first(pair) -> None:
    client, server = pair
    buffer = bytearray(300_000)

    def send_in_pieces() -> None:
        for i in range(0, 300_000, 1000):
            client.sendall(BLOCK[i : i + 1000])

    sending = in_background(send_in_pieces)
    n = server.recv_into(buffer, 0, socket.MSG_WAITALL)
    sending.result(10)
    stream_socket.set_receive_timeout(server, 0.02)
    client.sendall(b"part")
    wait_readable(server)

    assert (n, bytes(buffer)) == (300_000, BLOCK[:300_000])
    assert server.recv_into(bytearray(10), 0, socket.MSG_WAITALL) == 4


# The end.


@pytest.mark.parametrize(("n_missing", "arrives"), [(0, b"last words"), (1, b"")])
def test_the_end_of_one_side_is_the_end_for_the_other_also_in_the_middle_of_a_record(
    pair, n_missing: int, arrives: bytes
) -> None:
    client, server = pair
    record = encrypt(client, b"last words")

    client.raw.send(record[: len(record) - n_missing])
    client.raw.shutdown(socket.SHUT_WR)

    assert read_all(server) == arrives
    assert server.recv(1) == b""


def test_a_record_that_was_tampered_with_breaks_the_connection_and_is_never_data(pair) -> None:
    client, server = pair
    record = encrypt(client, b"pay 1 to the bearer")
    record[12] ^= 1
    client.raw.send(record)

    with pytest.raises(ConnectionAbortedError):
        server.recv(100)


def test_a_reader_is_woken_when_its_own_side_hangs_up(pair) -> None:
    client, _ = pair
    reading = in_background(client.recv, 1)

    client.shutdown(socket.SHUT_RDWR)

    assert reading.result(10) == b""


def test_closing_does_not_wait_for_a_writer_that_is_stuck(narrow_pair) -> None:
    client, _ = narrow_pair
    fill(client, memoryview(BLOCK))
    stuck = in_background(client.sendall, BLOCK)

    client.shutdown(socket.SHUT_RDWR)  # as everywhere: closing alone wakes nobody
    client.close()

    stuck.exception(10)


def test_an_interrupted_send_cuts_the_connection_rather_than_to_garble_it(pair) -> None:
    client, server = pair

    def send_half(data: memoryview, flags: int = 0) -> int:
        raw.send(data[: len(data) // 2])
        raise KeyboardInterrupt

    with tapped(client, send_half) as raw, pytest.raises(KeyboardInterrupt):
        client.sendall(b"x" * 1000)

    with pytest.raises(OSError):  # noqa: PT011  # which one is the system's choice
        client.sendall(b"y")
    assert read_all(server) == b""


def test_a_forked_child_that_closes_its_copy_says_nothing_to_the_peer(pair) -> None:
    client, server = pair
    assert exit_code_of_child(lambda: client.close() or 0) == 0

    client.sendall(b"still here")

    assert server.recv(100) == b"still here"


def test_options_are_those_of_the_raw_socket(pair) -> None:
    client, _ = pair

    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))

    assert client.raw.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("@ii", 1, 0)
    assert client.fileno() == client.raw.fileno()
