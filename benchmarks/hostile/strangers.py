"""Strangers: clients of many kinds that do not belong to a run.

Each sends a call whose argument is a canary. A stranger ignores the protocol: it trusts any certificate, and
sends everything at once, without waiting for the server's hello.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import socket
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from benchmarks.hostile.canary import Canary
from benchmarks.hostile.target import Target
from launchpad.courier import transport
from launchpad.courier.caller import Peer
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport.stream_socket import Socket

CHECK_EVERY_S = 10.0
ACCEPTED = "accepted"

Stranger = Callable[[Target], str]


def try_once(target: Target, kind: str) -> str:
    """Connect once; return the way in which the server refused the stranger, or ACCEPTED."""
    return KINDS[target.transport][kind](target)


def hello_with(token: bytes) -> bytes:
    return handshake.encode_client_hello(token, Peer("stranger"))


def send_call(sock: socket.socket | None, hello: bytes) -> str:
    """Send the hello and the call at once; read until the connection is closed."""
    if sock is None:
        return "refused in the TLS handshake"
    body = pickle.dumps(((Canary(),), {}), protocol=5)
    call = framing.encode_small(framing.CALL, 1, b"echo", body)
    with contextlib.closing(sock):
        with contextlib.suppress(OSError):  # the server may already have closed the connection
            sock.sendall(hello + call)
        return verdict(read_to_end(sock))


def read_to_end(sock: Socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except TimeoutError:
        raise
    except OSError as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        return data or str(reason).encode()
    return data


def verdict(answer: bytes) -> str:
    if len(answer) > handshake.SERVER_HELLO_SIZE:
        return ACCEPTED
    if len(answer) == handshake.SERVER_HELLO_SIZE:
        status = handshake.decode_server_hello(answer).status
        return ACCEPTED if status == handshake.ACCEPTED else handshake.STATUSES[status]
    if answer.startswith(handshake.TLS_ALERT):
        return "told to use TLS"
    return answer.decode(errors="replace") or "connection closed"


def dial_raw(target: Target) -> socket.socket:
    if target.transport == "unix":
        sock = transport.find(target.address).connect(target.address, CHECK_EVERY_S)
        assert isinstance(sock, socket.socket)
        sock.settimeout(CHECK_EVERY_S)
        return sock
    _, host, port = target.address.split(":")
    return socket.create_connection((host, int(port)), CHECK_EVERY_S)


def dial_tls(target: Target, credentials: Credentials | None) -> socket.socket | None:
    """Connect with TLS; return None if the handshake fails."""
    raw = dial_raw(target)
    try:
        return context(credentials).wrap_socket(raw)
    except TimeoutError:
        raise
    except OSError:
        raw.close()
        return None


@functools.lru_cache
def context(credentials: Credentials | None) -> ssl.SSLContext:
    """Return a TLS context that checks nothing."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    if credentials is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(credentials.cert_pem + b"\n" + credentials.key_pem)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


@functools.cache
def other_run() -> Credentials:
    return certificates.make_credentials()


@functools.lru_cache
def forge(credentials: Credentials | None) -> Credentials:
    """Return the credentials of a new authority that has the name of the true one."""
    from cryptography import x509

    assert credentials is not None

    (name,) = x509.load_pem_x509_certificate(credentials.ca_pem).subject
    run = bytes.fromhex(str(name.value).rpartition(" ")[2])
    with mock.patch("launchpad.courier.security.certificates.os.urandom", return_value=run):
        return certificates.make_credentials()


def by_raw(hello: Callable[[Target], bytes]) -> Stranger:
    return lambda target: send_call(dial_raw(target), hello(target))


def by_tls(credentials: Callable[[Target], Credentials | None]) -> Stranger:
    """Return a stranger that connects with TLS and these credentials, and has the right token."""
    return lambda target: send_call(dial_tls(target, credentials(target)), hello_with(target.token))


def with_our_certificate_and_a_wrong_token(target: Target) -> str:
    return send_call(dial_tls(target, target.credentials), hello_with(os.urandom(32)))


def of_another_version(target: Target) -> bytes:
    hello = bytearray(hello_with(target.token))
    hello[4] += 1
    return bytes(hello)


def behind_its_own(target: Target) -> Credentials:
    """Return another run's credentials, with our certificate behind its own in the chain.

    Our certificate is no secret, so a stranger may have it. Our key is secret, and OpenSSL
    accepts no certificate without its key.
    """
    assert target.credentials is not None
    chain = other_run().cert_pem + b"\n" + target.credentials.cert_pem
    return replace(other_run(), cert_pem=chain)


COMMON: dict[str, Stranger] = {
    "with a wrong token": by_raw(lambda _: hello_with(os.urandom(32))),
    "with no token": by_raw(lambda _: hello_with(b"")),
    "with half the token": by_raw(lambda target: hello_with(target.token[:16])),
    "with the token and more": by_raw(lambda target: hello_with(target.token + b"\0")),
    "without a hello": by_raw(lambda _: b""),
    "with another version": by_raw(of_another_version),
}
TLS: dict[str, Stranger] = {
    "with the certificate of another run": by_tls(lambda _: other_run()),
    "with a certificate of a forged authority": by_tls(lambda target: forge(target.credentials)),
    "with our certificate behind its own": by_tls(behind_its_own),
    "without a certificate": by_tls(lambda _: None),
    "without tls": by_raw(lambda target: hello_with(target.token)),
    "with our certificate and a wrong token": with_our_certificate_and_a_wrong_token,
}
KINDS = {"unix": COMMON, "tcp": COMMON, "tls": TLS}
