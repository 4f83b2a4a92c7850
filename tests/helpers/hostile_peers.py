"""Strangers who come to the port of a worker: some by mistake, some with a certificate, some in masses."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.caller import Peer
from launchpad.courier.protocol import handshake
from launchpad.courier.transport import tls
from tests.courier.conftest import reach

DEADLINE_S = 60


def assert_undisturbed(hard: Any) -> None:
    """A `tests.helpers.remote_nodes.Hard`, elsewhere, answers its client whatever they do."""
    address = hard.address

    with reach(address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n" * 30)
        assert answer_of(sock)[:1] in (b"", b"\x15")  # hung up, or an alert of TLS
    with courier.Client[Any](address, token=b"wrong") as stranger, pytest.raises(courier.Refused):
        stranger.echo(1)
    with greet(address, keyring.find(address)) as mad:
        assert mad.recv(handshake.SERVER_HELLO_SIZE)
        mad.sendall(b"\xee" * 100)
        assert answer_of(mad) == b""
    assert hard.echo(2) == 2

    hard.allow_descriptors(20)
    with contextlib.ExitStack() as silent:
        for _ in range(60):
            silent.enter_context(contextlib.closing(reach(address)))
        # More than the worker has descriptors for. It keeps the last ones from strangers.
        assert [hard.futures.echo(i).result(DEADLINE_S) for i in range(50)] == [*range(50)]
        assert not hard.has_run_out()
    with courier.Client[Any](address, call_timeout=DEADLINE_S) as newcomer:
        assert newcomer.echo("new") == "new"


def greet(address: str, token: bytes) -> tls.TlsSocket:
    """A connection of somebody who has the certificate of the run."""
    credentials = keyring.find_credentials(address)
    assert credentials is not None
    sock = tls.connect(reach(address), credentials, address, None)
    sock.sendall(handshake.encode_client_hello(token, Peer("stranger")))
    return sock


def answer_of(sock: socket.socket | tls.TlsSocket) -> bytes:
    """Return what the peer says before it hangs up, perhaps without having read everything."""
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1 << 16)
    return b""
