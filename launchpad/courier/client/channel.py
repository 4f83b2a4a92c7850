"""Channels: a channel carries a client's calls to its server. A `SocketChannel` does that over sockets.

A `SocketChannel` has a pool of connections for calls that wait, and a pipeline for all other calls. A caller
that waits takes a connection for itself, writes its request with one system call, and reads the answer with
another, without a second thread. The connection then goes back on top of the pool. So a lone caller always
uses the same connection, and at its other end a server thread is still reading.

On one host, calls with large arrays use separate connections, which share memory with the server.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import call_stack, transport
from launchpad.courier.client.call import call_and_wait, wait_for
from launchpad.courier.client.connection import ClientConnection, open_socket
from launchpad.courier.client.connection_pool import ConnectionPool, MovingConnectionPool
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.codec import pickling
from launchpad.courier.protocol import framing, handshake, joined
from launchpad.courier.shm import segments
from launchpad.courier.telemetry import tracing
from launchpad.courier.telemetry.counters import Counts
from launchpad.courier.transport import stream_socket

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future
    from typing import Self

    from launchpad.courier.client.pipeline import Pipeline
    from launchpad.courier.client.shm_connection import ShmClientConnection
    from launchpad.courier.client.stream import Stream

_GRPC_CHANNEL = "launchpad.courier.grpc.channel:GrpcChannel"
"""The class of gRPC channels, imported only when an address needs it."""

_current_call = call_stack.current_call.get
_encode_call = pickling.encode_call
_is_small = joined.is_small
_MOST_ARGS = joined.MOST_ARGS
_NUMBER_TAG = framing.encode_headers({framing.RECORDED: bytes(8)})[:-8]


class Channel(ABC):
    """The carrier of a client's calls, with one set of options. Any number of threads may share a channel.

    `with_options`, `with_trace` and `with_number` return views, which share everything else with the
    channel. `counts` counts the calls of all views, by method.
    """

    def __init__(self, peer: ServerInfo, options: Options, counts: Counts | None = None) -> None:
        self.peer = peer
        self.options = options
        self.counts = Counts() if counts is None else counts
        self.began = time.monotonic()
        self.trace = b""  # the span that a call belongs to, if any
        self.number = b""  # the number under which a call is recorded, if any
        self.trace_header = b""  # `trace` and `number`, encoded as headers

    @property
    @abstractmethod
    def n_connections(self) -> int:
        """The number of connections that are open now."""

    def with_options(self, options: Options) -> Self:
        """Return a channel with the same connections and other options."""
        view = self._view()
        view.options = options
        return view

    def with_trace(self, trace: bytes) -> Self:
        """Return a channel for one call, which belongs to this span."""
        view = self._view()
        view.trace = trace
        view.trace_header += framing.encode_headers({framing.TRACE: trace})
        return view

    def with_number(self, number: bytes) -> Self:
        """Return a channel for one call, which is recorded under this number of 8 bytes."""
        view = self._view()
        view.number = number
        view.trace_header += _NUMBER_TAG + number
        return view

    def _view(self) -> Self:
        # This does what `copy.copy` does, in a quarter of the time.
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        return view

    @abstractmethod
    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call and wait for the answer in this thread. If `tracing.spans` is set, it makes a span."""

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make a call without waiting, and return its future."""
        spans = tracing.spans
        if spans is not None and not self.trace_header:
            return spans.submit(self, method, args, kwargs)
        return self._submit(method, args, kwargs)

    @abstractmethod
    def _submit(
        self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]: ...

    def submit_in_loop(
        self, loop: AbstractEventLoop, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """Make a call as `submit` does. The calling thread is that of the loop that waits for the result."""
        return self.submit(method, *args, **kwargs)

    @abstractmethod
    def close(self) -> None:
        """Close all connections; a later call opens new ones. Futures in flight end with an error."""


class SocketChannel(Channel):
    """A channel over sockets: TCP, TLS, unix, and socket pairs within a process."""

    def __init__(self, peer: ServerInfo, options: Options, counts: Counts | None = None) -> None:
        super().__init__(peer, options, counts)
        if not peer.can_move:
            transport.find(peer.address)  # a malformed address raises when the client is made
        pool = MovingConnectionPool if peer.can_move else ConnectionPool
        self.connections = pool(peer)
        self.idle_connections = self.connections.idle_connections
        self.shm_connections = self.connections.shm_connections
        self.shm_methods = self.connections.shm_methods

    @property
    def n_connections(self) -> int:
        return self.connections.n_open

    call = call_and_wait

    def call_with_streams(
        self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        from launchpad.courier.client.stream_calls import call_with_streams

        return call_with_streams(self, method, args, kwargs)

    def open_stream(self, connection: ClientConnection, method: bytes) -> Stream:
        from launchpad.courier.client.stream_calls import open_stream

        return open_stream(self, connection, method)

    def submit_in_loop(
        self, loop: AbstractEventLoop, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        if tracing.spans is not None and not self.trace_header:
            return self.submit(method, *args, **kwargs)
        return self._submit(method, args, kwargs, loop)

    def _submit(
        self,
        method: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loop: AbstractEventLoop | None = None,
    ) -> Future[Any]:
        """Make a call without waiting: on the pipeline, or through shared memory for large arrays."""
        if (
            not kwargs
            and len(args) <= _MOST_ARGS
            and self.options.timeout_s is None
            and not self.trace_header
            and method not in self.shm_methods
            and _current_call() is None
        ):
            for arg in args:
                if not _is_small(arg):
                    break
            else:
                return self._find_pipeline(loop).submit_small(self, method, args)
        body, views = _encode_call(args, kwargs)
        if views is None:
            from launchpad.courier.client.stream_calls import submit_with_streams

            return submit_with_streams(self, method, args, kwargs)
        if (views and segments.is_worthwhile(views)) or method in self.shm_methods:
            call = self.connections.get_shm_calls().try_submit(self, method, body, views)
            if call is not None:
                return call
        return self._find_pipeline(loop).submit(self, method, body, views)

    def _find_pipeline(self, loop: AbstractEventLoop | None) -> Pipeline:
        if loop is None:
            return self.connections.get_pipeline()
        return self.connections.get_aio_pipeline(loop)

    def close(self) -> None:
        self.connections.close()

    def open_connection(
        self, connections: deque[ClientConnection], method: bytes, deadline: float | None
    ) -> ClientConnection:
        peer = self.peer
        shares = connections is not self.idle_connections
        attempt = partial(open_socket, peer, flags=handshake.SHARE if shares else 0)
        sock, address = wait_for(attempt, peer, method, self.options, deadline)
        if not shares:
            is_stale = self._count_connection(sock, address)
            return ClientConnection(sock, peer.max_bytes, is_stale, address)
        return self._share(sock, address) or self.open_connection(
            self.idle_connections, method, deadline
        )

    def try_to_open_shm(self, limit_s: float | None) -> ShmClientConnection | None:
        """Try once to open a connection that shares memory. Return None if the server is down or can't share.

        Raises Refused, or NotSent if this process has no file descriptor left.
        """
        self.peer.locate()
        if not self.peer.shares_memory:
            return None
        connected_socket = open_socket(self.peer, limit_s, handshake.SHARE)
        if connected_socket is None:
            return None
        sock, address = connected_socket
        return self._share(sock, address)

    def _share(self, sock: stream_socket.Socket, address: str) -> ShmClientConnection | None:
        """Return a connection that shares memory. If the new socket can't do that, close it, return None."""
        # The handshake may have shown that the server is on another host.
        if not (self.peer.shares_memory and stream_socket.is_unix(sock)):
            sock.close()
            return None
        from launchpad.courier.client.shm_connection import ShmClientConnection

        is_stale = self._count_connection(sock, address)
        return ShmClientConnection(sock, self.peer, is_stale, address)

    def _count_connection(
        self, sock: stream_socket.Socket, address: str
    ) -> Callable[[stream_socket.Socket], bool] | None:
        """Count an open socket. Return a function that is True if the socket must not be used again."""
        self.connections.add(sock)
        peer = self.peer
        is_closed = transport.find(address).is_stale

        def is_obsolete(sock: stream_socket.Socket) -> bool:
            # After a move, the old server may still run, cut off from the rest. Clients must not call it.
            return peer.has_moved_from(address) or (is_closed is not None and is_closed(sock))

        return is_obsolete if peer.can_move else is_closed


def channel_to(peer: ServerInfo, options: Options) -> Channel:
    """Return a channel to the server: over gRPC if its address says so, else over sockets.

    Raises:
        ValueError: The client has a link, and the address is for gRPC, whose messages can't be delayed.
    """
    if peer.can_move or not transport.is_grpc(peer.address):
        return SocketChannel(peer, options)
    if peer.link is not None:
        raise ValueError(
            f"{peer} is reached by gRPC, whose connections are not ours to hold up: Delay and "
            "Bandwidth work at unix:, tcp: and inproc: addresses"
        )
    grpc_channel: Channel = transport.load(_GRPC_CHANNEL)(peer, options)
    return grpc_channel
