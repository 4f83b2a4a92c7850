"""TCP, with TLS where the keyring has credentials: how a server on another host is reached.

A connection in the clear is the plain socket itself; one with TLS is a `TlsSocket`, which has the
same methods. What differs from a unix socket:

- A write to a peer that has just closed succeeds, because the peer's answer to it is yet to come.
  Ask `is_stale` before a connection that has been idle is used again.
- A peer may vanish without closing: its host, or the network between. The kernel probes a silent
  peer every second, and gives up after 3 s. What is not acknowledged is watched by
  peer_liveness.py. Neither asks the peer's Python, so a method that holds the GIL looks alive.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import time

from launchpad.courier.security import keyring
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import network_address as endpoints
from launchpad.courier.transport import peer_liveness, stream_socket
from launchpad.courier.transport.network_address import Endpoint
from launchpad.courier.transport.stream_socket import Listener, Socket

_BACKLOG = 4096
_DIAL_S = 0.9  # less than until the kernel asks again by itself: a new attempt asks at once
_KEEPALIVE = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2}  # dead after 1 + 2 × 1 s
# Since Linux 6.15, and Python has no name for it: repeats are not further apart than that.
_TCP_RTO_MAX_MS, _RTO_MAX_MS = 44, 1000

check = endpoints.parse


class TcpListener(Listener):
    """A listening socket. Port 0 is any free one; `address` then has the real one.

    Example:
        listener = TcpListener("tcp:0.0.0.0:0")
        selector.register(listener.sock, selectors.EVENT_READ)
        ...
        connection = listener.accept()

    The TLS handshake of a client is done while it is read (`TlsSocket.recv`), not when it is accepted,
    so that a slow one does not hold up the others.
    """

    def __init__(self, address: str) -> None:
        wanted = endpoints.parse(address)
        self._credentials = find_credentials(wanted)
        family, where = endpoints.resolve(wanted, to_bind=True)[0]
        if self._credentials is None:
            endpoints.check_plaintext(wanted, where[0])
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Past connections of a server before us may linger; another that listens is still an error.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind(where)
            self.sock.listen(_BACKLOG)
            self.sock.setblocking(False)
            if self._credentials is not None:
                from launchpad.courier.transport import tls_context

                # A bad key is the server's error, not its clients'.
                tls_context.make(self._credentials, is_server=True)
        except BaseException as error:
            self.sock.close()
            if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
                raise
            what = "another server already listens on this address; stop it first, or use port 0"
            raise OSError(errno.EADDRINUSE, what, str(wanted)) from error
        self.address = str(Endpoint(wanted.scheme, wanted.host, self.sock.getsockname()[1]))

    def accept(self) -> Socket:
        """The next client. Never blocks.

        Raises OSError when there is none: BlockingIOError if none has connected, ConnectionError if
        one has closed again, others for want of descriptors or memory.
        """
        sock, _ = self.sock.accept()
        try:
            sock.setblocking(True)
            _tune(sock)
            if self._credentials is None:
                return sock
            from launchpad.courier.transport import tls

            return tls.accept(sock, self._credentials)
        except OSError as error:
            sock.close()
            what = "the client has closed again"
            raise ConnectionAbortedError(errno.ECONNABORTED, what) from error


listen = TcpListener


def connect(address: str, timeout_s: float | None) -> Socket:
    """One attempt to connect, handshake included, at all addresses of the host in turn.

    Raises PermissionError where TLS is needed and there are no credentials; Refused when the
    server's certificate is not of our run, or ours not of its; ProtocolError when it speaks no
    TLS; any other OSError when no server is up there. Its name may be unknown, too, until it is.
    """
    wanted = endpoints.parse(address)
    if wanted.port == 0:
        raise ValueError(f"{address!r} has no port: a client needs the address that a server got")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    credentials = find_credentials(wanted)
    problem: OSError | None = None
    for family, where in endpoints.resolve(wanted):
        if credentials is None:
            endpoints.check_plaintext(wanted, where[0])
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            left = _DIAL_S if deadline is None else max(0.001, deadline - time.monotonic())
            sock.settimeout(min(left, _DIAL_S))
            sock.connect(where)
            if sock.getsockname() == where:
                what = "no server: it connected to itself"
                raise ConnectionRefusedError(errno.ECONNREFUSED, what)
            sock.settimeout(None)
            _tune(sock)
            break
        except BaseException as error:
            if sock is not None:
                sock.close()
            if not isinstance(error, OSError):
                raise
            problem = error
    else:
        assert problem is not None
        raise problem
    if credentials is None:
        return sock
    from launchpad.courier.transport import tls

    return tls.connect(sock, credentials, address, deadline)


def find_credentials(endpoint: Endpoint) -> Credentials | None:
    """What the keyring has for it; nothing where plaintext was asked for by name."""
    return None if endpoint.wants_plaintext else keyring.find_credentials(str(endpoint))


def is_stale(sock: Socket) -> bool:
    """The peer has closed, or sent something, on a connection on which nothing was expected."""
    if stream_socket.has_pending(sock):
        return True
    try:
        stream_socket.raw_of(sock).recv(1, stream_socket.PEEK_NOW)
        return True
    except OSError as error:
        return not isinstance(error, BlockingIOError)


def _tune(sock: socket.socket) -> None:
    """Sends at once, and notices when the peer vanishes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoints.is_loopback(sock.getpeername()[0]):
        # The kernel itself is the peer: it does not vanish, and nothing gets lost. So no
        # pacing is needed: where BBR is the rule, large transfers take 2.5 times as long with it.
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _RTO_MAX_MS)
        peer_liveness.watch(sock)
