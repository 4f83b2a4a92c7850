"""TCP connections to servers on other hosts, with TLS if the keyring has credentials.

A plaintext connection is the plain socket itself. A connection with TLS is a `TlsSocket`, which has the same
methods. TCP differs from a unix socket in two ways:

- A write to a peer that has just closed succeeds, because the peer's answer has not arrived yet. Ask
  `is_stale` before using a connection that has been idle.
- A peer may vanish without closing, because its host or the network fails. The kernel probes a silent peer
  every second, and gives up after 3 s. peer_liveness.py watches data that is not acknowledged. Neither asks
  the peer's Python, so a peer whose method holds the GIL still counts as alive.
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
# The limit for one attempt to connect. It is shorter than the time after which the kernel repeats its
# request, because a new attempt sends a request at once.
_DIAL_S = 0.9
_KEEPALIVE = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2}  # dead after 1 + 2 × 1 s
# The option for the longest time between two retransmissions. Linux has it since 6.15, and Python has no name
# for it.
_TCP_RTO_MAX_MS = 44
_RTO_MAX_MS = 1000

check = endpoints.parse


class TcpListener(Listener):
    """A listening TCP socket. For port 0 the system picks a free port, and `address` has that port.

    Example:
        listener = TcpListener("tcp:0.0.0.0:0")
        selector.register(listener.sock, selectors.EVENT_READ)
        ...
        connection = listener.accept()

    A client's TLS handshake takes place when the client is read (`TlsSocket.recv`), not when it is accepted,
    so that a slow client doesn't hold up the others.
    """

    def __init__(self, address: str) -> None:
        endpoint = endpoints.parse(address)
        self._credentials = find_credentials(endpoint)
        family, where = endpoints.resolve(endpoint, to_bind=True)[0]
        if self._credentials is None:
            endpoints.check_plaintext(endpoint, where[0])
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Old connections of an earlier server may linger, and must not prevent the bind. If another
            # server listens, `bind` still fails.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind(where)
            self.sock.listen(_BACKLOG)
            self.sock.setblocking(False)
            if self._credentials is not None:
                from launchpad.courier.transport import tls_context

                # Report a bad key here, as the server's error, and not when a client connects.
                tls_context.make(self._credentials, is_server=True)
        except BaseException as error:
            self.sock.close()
            if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
                raise
            message = "another server already listens on this address; stop it first, or use port 0"
            raise OSError(errno.EADDRINUSE, message, str(endpoint)) from error
        self.address = str(Endpoint(endpoint.scheme, endpoint.host, self.sock.getsockname()[1]))

    def accept(self) -> Socket:
        """Return the next client. Never blocks.

        Raises:
            BlockingIOError: No client has connected.
            ConnectionError: A client has already closed its connection again.
            OSError: The process is out of descriptors or memory.
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
            message = "the client has closed again"
            raise ConnectionAbortedError(errno.ECONNABORTED, message) from error


listen = TcpListener


def connect(address: str, timeout_s: float | None) -> Socket:
    """Make one attempt to connect, including the TLS handshake, at all addresses of the host in turn.

    Raises:
        PermissionError: TLS is needed, and there are no credentials.
        Refused: The server's certificate is not from our run, or ours is not from the server's run.
        ProtocolError: The server doesn't speak TLS.
        OSError: No server is up at the address, or the host's name can't be resolved yet.
    """
    endpoint = endpoints.parse(address)
    if endpoint.port == 0:
        raise ValueError(f"{address!r} has no port: a client needs the address that a server got")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    credentials = find_credentials(endpoint)
    problem: OSError | None = None
    for family, where in endpoints.resolve(endpoint):
        if credentials is None:
            endpoints.check_plaintext(endpoint, where[0])
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            remaining_s = _DIAL_S if deadline is None else max(0.001, deadline - time.monotonic())
            sock.settimeout(min(remaining_s, _DIAL_S))
            sock.connect(where)
            if sock.getsockname() == where:
                message = "no server: it connected to itself"
                raise ConnectionRefusedError(errno.ECONNREFUSED, message)
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
    """Return the keyring's credentials for an endpoint, or None if its scheme asks for plaintext."""
    return None if endpoint.wants_plaintext else keyring.find_credentials(str(endpoint))


def is_stale(sock: Socket) -> bool:
    """Return True if the peer has closed an idle connection, or has sent unexpected data on it."""
    if stream_socket.has_pending(sock):
        return True
    try:
        stream_socket.raw_of(sock).recv(1, stream_socket.PEEK_NOW)
        return True
    except OSError as error:
        return not isinstance(error, BlockingIOError)


def _tune(sock: socket.socket) -> None:
    """Set a socket's options, so that the socket sends without delay and notices a vanished peer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoints.is_loopback(sock.getpeername()[0]):
        # The peer is on this host, so its kernel can't vanish, and no data gets lost. Pacing isn't needed
        # either. On hosts that use BBR by default, pacing would make large transfers take 2.5 times as long.
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
