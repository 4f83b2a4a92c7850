"""Connections on which garbage is sent, of many kinds."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

from benchmarks.hostile.strangers import context, dial_raw
from benchmarks.hostile.target import Target
from launchpad.courier import transport
from launchpad.courier.caller import Peer
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.transport.stream_socket import Socket

CHECK_EVERY_S = 10.0
_RESET = struct.pack("@ii", 1, 0)
_HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(256))  # of a longer one


class Attempt(NamedTuple):
    """One connection: its target, and the random numbers that decide what is sent."""

    target: Target
    rng: random.Random


def nothing_at_all(attempt: Attempt) -> None:
    dial_raw(attempt.target).close()


def a_reset(attempt: Attempt) -> None:
    with dial_raw(attempt.target) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def random_bytes(attempt: Attempt) -> None:
    send(attempt, attempt.rng.randbytes(attempt.rng.randrange(1, 4096)))


def a_browser(attempt: Attempt) -> None:
    send(attempt, _HTTP)


def zeros(attempt: Attempt) -> None:
    send(attempt, bytes(1024))


def half_a_hello(attempt: Attempt) -> None:
    hello = handshake.encode_client_hello(b"", Peer("garbage"))
    send(attempt, hello[: attempt.rng.randrange(len(hello))])


def a_damaged_hello(attempt: Attempt) -> None:
    hello = bytearray(handshake.encode_client_hello(attempt.target.token, Peer("garbage")))
    for _ in range(4):
        hello[attempt.rng.randrange(80)] ^= 1 << attempt.rng.randrange(8)
    send(attempt, bytes(hello), is_read=True)


def a_tls_hello(attempt: Attempt) -> None:
    send(attempt, _CLIENT_HELLO[: attempt.rng.randrange(3, len(_CLIENT_HELLO))], is_read=True)


def a_tls_handshake_without_a_certificate(attempt: Attempt) -> None:
    raw = dial_raw(attempt.target)
    try:
        with context(None).wrap_socket(raw) as sock:
            sock.recv(1)
    except OSError:
        raw.close()


# From clients of the run, too: they are accepted, and then send garbage.


def a_header_that_promises_too_much(attempt: Attempt) -> None:
    method, extra, body = attempt.rng.choice(
        [(0, 0, 1 << 60), (65_535, 0, 8), (1, 65_535, 8), (1, 0xFFFF << 16, 8), (1, 1, 1 << 40)]
    )
    header = framing.HEADER.pack(framing.MAGIC, framing.CALL, method, extra, 1, body, 0)
    send_after_hello(attempt, header + b"x" * 100)


def frames_of_random_bytes(attempt: Attempt) -> None:
    send_after_hello(attempt, attempt.rng.randbytes(attempt.rng.randrange(1, 2048)))


def a_call_that_is_no_pickle(attempt: Attempt) -> None:
    body = b"\xff" + attempt.rng.randbytes(attempt.rng.randrange(200))
    send_after_hello(attempt, framing.encode_small(framing.CALL, 1, b"echo", body))


def half_a_call(attempt: Attempt) -> None:
    call = framing.encode_small(framing.CALL, 1, b"echo", bytes(1000))
    send_after_hello(attempt, call[: attempt.rng.randrange(len(call))])


WITHOUT_TOKEN: tuple[Callable[[Attempt], None], ...] = (
    nothing_at_all,
    a_reset,
    random_bytes,
    a_browser,
    zeros,
    half_a_hello,
    a_damaged_hello,
    a_tls_hello,
    a_tls_handshake_without_a_certificate,
)
WITH_TOKEN: tuple[Callable[[Attempt], None], ...] = (
    a_header_that_promises_too_much,
    frames_of_random_bytes,
    a_call_that_is_no_pickle,
    half_a_call,
)
KINDS = {
    # A handshake costs a hundred times what the rest does, so with TLS clients of the run are few.
    "unix": WITHOUT_TOKEN + WITH_TOKEN,
    "tcp": WITHOUT_TOKEN + WITH_TOKEN,
    "tls": WITHOUT_TOKEN[:-1] * 6 + WITHOUT_TOKEN[-1:] + WITH_TOKEN,
}


def send_garbage(target: Target, n: int, pipe: Connection) -> None:
    """Makes `n` connections; sends True now and then, and in the end False."""
    with target.client():  # clients of the run need the credentials
        disturb(target, n, lambda: pipe.send(True))
    pipe.send(False)


def disturb(target: Target, n: int, on_progress: Callable[[], None] = lambda: None) -> None:
    """Makes one connection after the other, except for a few that stay open for a while."""
    attempt = Attempt(target, random.Random(n))
    kinds = KINDS[target.transport]
    with contextlib.ExitStack() as silent:
        for i in range(n):
            if i % 100 == 0:
                silent.pop_all().close()
                on_progress()
            if i % 10 == 0:  # sends half of a hello and then nothing, until the others are done
                sock = silent.enter_context(dial_raw(target))
                with contextlib.suppress(OSError):
                    sock.sendall(handshake.encode_client_hello(b"", Peer("silent"))[: i % 300])
            with contextlib.suppress(ConnectionError):
                attempt.rng.choice(kinds)(attempt)


def send(attempt: Attempt, data: bytes, *, is_read: bool = False) -> None:
    """Whether the answer is read: closing with something unread resets the connection."""
    with dial_raw(attempt.target) as sock:
        sock.sendall(data)
        if is_read:
            sock.shutdown(socket.SHUT_WR)
            read_to_end(sock)


def send_after_hello(attempt: Attempt, data: bytes) -> None:
    """Sends after a correct client hello."""
    sock = transport.find(attempt.target.address).connect(attempt.target.address, CHECK_EVERY_S)
    flags = attempt.rng.choice([0, handshake.OVERLAP])
    with contextlib.closing(sock):
        sock.settimeout(CHECK_EVERY_S)
        sock.sendall(
            handshake.encode_client_hello(attempt.target.token, Peer("garbage"), flags) + data
        )
        sock.shutdown(socket.SHUT_WR)
        read_to_end(sock)


def read_to_end(sock: Socket) -> None:
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            pass
