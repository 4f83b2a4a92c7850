"""The route of a call: the parts of its channel with which it can be sent again, or become a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from launchpad.courier.client.connection import ClientConnection
    from launchpad.courier.client.options import Options
    from launchpad.courier.client.server_info import ServerInfo
    from launchpad.courier.client.shm_connection import ShmClientConnection
    from launchpad.courier.telemetry.counters import Counts


class CallPipeline(Protocol):
    """A connection for many calls at a time: `Pipeline`."""

    def resubmit(
        self, call: Any, body: bytes, buffers: Sequence[memoryview], headers: bytes
    ) -> None:
        """Make a call that another way was tried for, and that has not run. Never waits."""


class CallConnections(Protocol):
    """The open connections of a client: `ConnectionPool`."""

    def get_pipeline(self) -> CallPipeline:
        """Return the pipeline for calls that do not wait."""

    def take_shm(self) -> ShmClientConnection | None:
        """Return an idle connection that shares memory, for the caller alone, or None."""

    def add_stream(self, call: Any) -> None:
        """Have `close` close this call with streams, too."""


class CallRoute(Protocol):
    """A channel as its calls see it: `SocketChannel`."""

    peer: ServerInfo
    options: Options
    counts: Counts
    trace_header: bytes
    idle_connections: deque[ClientConnection]
    shm_connections: deque[ClientConnection]
    shm_methods: set[bytes]

    @property
    def connections(self) -> CallConnections:
        """The open connections."""

    def with_options(self, options: Options) -> Self:
        """Return a route with the same connections and other options."""

    def call_with_streams(
        self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call with iterators among its arguments, and wait for the answer."""

    def open_stream(self, connection: ClientConnection, method: bytes) -> Iterator[Any]:
        """Return the stream that a call on this connection was answered with."""

    def open_connection(
        self, connections: deque[ClientConnection], method: bytes, deadline: float | None
    ) -> ClientConnection:
        """Return a new connection of the same kind; wait for the server as long as the call may."""

    def try_to_open_shm(self, limit_s: float | None) -> ShmClientConnection | None:
        """Return a new connection that shares memory, if the server is up and offers that."""
