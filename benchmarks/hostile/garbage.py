"""Connections on which nothing sensible is said, of many kinds."""

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
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.transport.stream_socket import Socket

CHECK_EVERY_S = 10.0
_RESET = struct.pack("@ii", 1, 0)
_HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(256))  # of a longer one


class Visit(NamedTuple):
    """What to do to a target, and with what luck."""

    target: Target
    rng: random.Random


def nothing_at_all(visit: Visit) -> None:
    dial_raw(visit.target).close()


def a_reset(visit: Visit) -> None:
    with dial_raw(visit.target) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def random_bytes(visit: Visit) -> None:
    say(visit, visit.rng.randbytes(visit.rng.randrange(1, 4096)))


def a_browser(visit: Visit) -> None:
    say(visit, _HTTP)


def zeros(visit: Visit) -> None:
    say(visit, bytes(1024))


def half_a_greeting(visit: Visit) -> None:
    hello = handshake.encode_client_hello(b"", "garbage")
    say(visit, hello[: visit.rng.randrange(len(hello))])


def a_damaged_greeting(visit: Visit) -> None:
    hello = bytearray(handshake.encode_client_hello(visit.target.token, "garbage"))
    for _ in range(4):
        hello[visit.rng.randrange(80)] ^= 1 << visit.rng.randrange(8)
    say(visit, bytes(hello), is_read=True)


def a_tls_hello(visit: Visit) -> None:
    say(visit, _CLIENT_HELLO[: visit.rng.randrange(3, len(_CLIENT_HELLO))], is_read=True)


def a_tls_handshake_without_a_certificate(visit: Visit) -> None:
    raw = dial_raw(visit.target)
    try:
        with context(None).wrap_socket(raw) as sock:
            sock.recv(1)
    except OSError:
        raw.close()


# Of those who belong, too: they have been let in, and then talk nonsense.


def a_header_that_promises_too_much(visit: Visit) -> None:
    method, extra, body = visit.rng.choice(
        [(0, 0, 1 << 60), (65_535, 0, 8), (1, 65_535, 8), (1, 0xFFFF << 16, 8), (1, 1, 1 << 40)]
    )
    header = framing.HEADER.pack(framing.MAGIC, framing.CALL, method, extra, 1, body, 0)
    say_inside(visit, header + b"x" * 100)


def frames_of_random_bytes(visit: Visit) -> None:
    say_inside(visit, visit.rng.randbytes(visit.rng.randrange(1, 2048)))


def a_call_that_is_no_pickle(visit: Visit) -> None:
    body = b"\xff" + visit.rng.randbytes(visit.rng.randrange(200))
    say_inside(visit, framing.encode_small(framing.CALL, 1, b"echo", body))


def half_a_call(visit: Visit) -> None:
    call = framing.encode_small(framing.CALL, 1, b"echo", bytes(1000))
    say_inside(visit, call[: visit.rng.randrange(len(call))])


OUTSIDERS: tuple[Callable[[Visit], None], ...] = (
    nothing_at_all,
    a_reset,
    random_bytes,
    a_browser,
    zeros,
    half_a_greeting,
    a_damaged_greeting,
    a_tls_hello,
    a_tls_handshake_without_a_certificate,
)
INSIDERS: tuple[Callable[[Visit], None], ...] = (
    a_header_that_promises_too_much,
    frames_of_random_bytes,
    a_call_that_is_no_pickle,
    half_a_call,
)
KINDS = {
    # A handshake costs a hundred times what the rest does, so with TLS insiders are few.
    "unix": OUTSIDERS + INSIDERS,
    "tcp": OUTSIDERS + INSIDERS,
    "tls": OUTSIDERS[:-1] * 6 + OUTSIDERS[-1:] + INSIDERS,
}


def be_a_nuisance(target: Target, n: int, pipe: Connection) -> None:
    """`n` connections; says True now and then, and in the end False."""
    with target.client():  # those who belong need the credentials
        disturb(target, n, lambda: pipe.send(True))
    pipe.send(False)


def disturb(target: Target, n: int, say_so: Callable[[], None] = lambda: None) -> None:
    """One connection after the other, except for a few that stay open for a while."""
    visit = Visit(target, random.Random(n))
    kinds = KINDS[target.carrier]
    with contextlib.ExitStack() as silent:
        for i in range(n):
            if i % 100 == 0:
                silent.pop_all().close()
                say_so()
            if i % 10 == 0:  # says half of something and then nothing, until the others have come
                sock = silent.enter_context(dial_raw(target))
                with contextlib.suppress(OSError):
                    sock.sendall(handshake.encode_client_hello(b"", "silent")[: i % 300])
            with contextlib.suppress(ConnectionError):
                visit.rng.choice(kinds)(visit)


def say(visit: Visit, data: bytes, *, is_read: bool = False) -> None:
    """To be read or not: hanging up with something unread resets the connection."""
    with dial_raw(visit.target) as sock:
        sock.sendall(data)
        if is_read:
            sock.shutdown(socket.SHUT_WR)
            read_to_end(sock)


def say_inside(visit: Visit, data: bytes) -> None:
    """After a proper greeting."""
    sock = transport.find(visit.target.address).connect(visit.target.address, CHECK_EVERY_S)
    flags = visit.rng.choice([0, handshake.OVERLAP])
    with contextlib.closing(sock):
        sock.settimeout(CHECK_EVERY_S)
        sock.sendall(handshake.encode_client_hello(visit.target.token, "garbage", flags) + data)
        sock.shutdown(socket.SHUT_WR)
        read_to_end(sock)


def read_to_end(sock: Socket) -> None:
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            pass
