"""Connections that send garbage of many kinds, and a good client that keeps calling at the same time."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness.figures import percentile
from benchmarks.hostile.strangers import CHECK_EVERY_S, context, dial_raw, read_to_end
from benchmarks.hostile.target import Target
from launchpad import courier
from launchpad.courier import transport
from launchpad.courier.caller import Peer
from launchpad.courier.protocol import framing, handshake

NEW_CLIENT_EVERY = 200  # calls; every 200th is made by a new client, which connects for it
_RESET = struct.pack("@ii", 1, 0)
_HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(256))  # of a longer one


class Attempt:
    """Connections to a target; random numbers decide what is sent."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self.target = target
        self.rng = rng

    def _send(self, data: bytes, *, is_read: bool = False) -> None:
        """Send bytes. Without `is_read`, the close resets the connection if there is unread data."""
        with dial_raw(self.target) as sock:
            sock.sendall(data)
            if is_read:
                sock.shutdown(socket.SHUT_WR)
                read_to_end(sock)

    def _send_after_hello(self, data: bytes) -> None:
        """Send bytes after a correct client hello."""
        sock = transport.find(self.target.address).connect(self.target.address, CHECK_EVERY_S)
        flags = self.rng.choice([0, handshake.OVERLAP])
        with contextlib.closing(sock):
            sock.settimeout(CHECK_EVERY_S)
            sock.sendall(
                handshake.encode_client_hello(self.target.token, Peer("garbage"), flags) + data
            )
            sock.shutdown(socket.SHUT_WR)
            read_to_end(sock)


class WithoutToken(Attempt):
    """Garbage that anyone can send. Each public method sends one kind."""

    def nothing_at_all(self) -> None:
        dial_raw(self.target).close()

    def a_reset(self) -> None:
        with dial_raw(self.target) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def random_bytes(self) -> None:
        self._send(self.rng.randbytes(self.rng.randrange(1, 4096)))

    def a_browser(self) -> None:
        self._send(_HTTP)

    def zeros(self) -> None:
        self._send(bytes(1024))

    def half_a_hello(self) -> None:
        hello = handshake.encode_client_hello(b"", Peer("garbage"))
        self._send(hello[: self.rng.randrange(len(hello))])

    def a_damaged_hello(self) -> None:
        hello = bytearray(handshake.encode_client_hello(self.target.token, Peer("garbage")))
        for _ in range(4):
            hello[self.rng.randrange(80)] ^= 1 << self.rng.randrange(8)
        self._send(bytes(hello), is_read=True)

    def a_tls_hello(self) -> None:
        self._send(_CLIENT_HELLO[: self.rng.randrange(3, len(_CLIENT_HELLO))], is_read=True)

    def a_tls_handshake_without_a_certificate(self) -> None:
        raw = dial_raw(self.target)
        try:
            with context(None).wrap_socket(raw) as sock:
                sock.recv(1)
        except OSError:
            raw.close()


class WithToken(Attempt):
    """Garbage that clients of the run can send, after the server has accepted them."""

    def a_header_that_promises_too_much(self) -> None:
        method, extra, body = self.rng.choice(
            [(0, 0, 1 << 60), (65_535, 0, 8), (1, 65_535, 8), (1, 0xFFFF << 16, 8), (1, 1, 1 << 40)]
        )
        header = framing.HEADER.pack(framing.MAGIC, framing.CALL, method, extra, 1, body, 0)
        self._send_after_hello(header + b"x" * 100)

    def frames_of_random_bytes(self) -> None:
        self._send_after_hello(self.rng.randbytes(self.rng.randrange(1, 2048)))

    def a_call_that_is_no_pickle(self) -> None:
        body = b"\xff" + self.rng.randbytes(self.rng.randrange(200))
        self._send_after_hello(framing.encode_small(framing.CALL, 1, b"echo", body))

    def half_a_call(self) -> None:
        call = framing.encode_small(framing.CALL, 1, b"echo", bytes(1000))
        self._send_after_hello(call[: self.rng.randrange(len(call))])


Kind = Callable[[Target, random.Random], None]


def _kinds(attempt_class: type[Attempt]) -> list[Kind]:
    names = [name for name in vars(attempt_class) if not name.startswith("_")]
    return [partial(_send_one, attempt_class, name) for name in names]


def _send_one(attempt_class: type[Attempt], name: str, target: Target, rng: random.Random) -> None:
    getattr(attempt_class(target, rng), name)()


ANYONE = _kinds(WithoutToken)
CLIENTS = _kinds(WithToken)
KINDS = {
    "unix": ANYONE + CLIENTS,
    "tcp": ANYONE + CLIENTS,
    # A TLS handshake costs a hundred times as much as the rest, so few connections make one.
    "tls": ANYONE[:-1] * 6 + ANYONE[-1:] + CLIENTS,
}


def send_garbage(target: Target, n: int, pipe: Connection) -> None:
    """Make `n` connections; send True on the pipe now and then, and False at the end."""
    with target.client():  # it adds the credentials to this process, which `CLIENTS` need
        disturb(target, n, lambda: pipe.send(True))
    pipe.send(False)


def disturb(target: Target, n: int, on_progress: Callable[[], None] = lambda: None) -> None:
    """Make one connection after the other, except for a few that stay open for a while."""
    rng = random.Random(n)
    kinds = KINDS[target.transport]
    with contextlib.ExitStack() as silent:
        for i in range(n):
            if i % 100 == 0:
                silent.pop_all().close()
                on_progress()
            if i % 10 == 0:  # send half of a hello, and nothing more until the others are done
                sock = silent.enter_context(dial_raw(target))
                with contextlib.suppress(OSError):
                    sock.sendall(handshake.encode_client_hello(b"", Peer("silent"))[: i % 300])
            with contextlib.suppress(ConnectionError):
                rng.choice(kinds)(target, rng)


def watch(target: Target, pipe: Connection) -> None:
    """Call from one message on the pipe to the next, then send the figures; again and again."""
    with target.client() as client:
        client.echo(0)
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send(call_until_message(target, client, pipe))


def call_until_message(target: Target, client: Any, pipe: Connection) -> dict[str, Any]:
    times_us: list[float] = []
    new_clients_ms: list[float] = []
    errors: list[str] = []
    i = 0
    while not pipe.poll():
        i += 1
        began = time.perf_counter()
        try:
            if i % NEW_CLIENT_EVERY == 0:
                call_as_new_client(target, i)
                new_clients_ms.append((time.perf_counter() - began) * 1e3)
            else:
                assert client.echo(i) == i
                times_us.append((time.perf_counter() - began) * 1e6)
        except Exception as error:
            errors.append(repr(error)[:200])
    pipe.recv()
    return {
        "calls": i,
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "p50_us": quantile(times_us, 50),
        "p99_us": quantile(times_us, 99),
        "new_client_p99_ms": quantile(new_clients_ms, 99),
    }


def call_as_new_client(target: Target, i: int) -> None:
    with courier.Client[Any](target.address, token=target.token) as client:
        assert client.echo(i) == i


def quantile(figures: list[float], percent: int) -> float:
    return percentile(figures, percent) if figures else float("nan")
