"""The route of a call: the parts of a channel that are used to repeat a call or to open its stream."""

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
        """Make a call that was tried on another connection and has not run. Never waits."""


class CallConnections(Protocol):
    """The open connections of a client: `ConnectionPool`."""

    def get_pipeline(self) -> CallPipeline:
        """Return the pipeline for calls that do not wait."""

    def take_shm(self) -> ShmClientConnection | None:
        """Take an idle connection that shares memory. Return None if there is no idle connection."""

    def add_stream(self, call: Any) -> None:
        """Add a call with streams, so that `close` closes it, too."""


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
        """Return the stream that is the answer to the call on this connection."""

    def open_connection(
        self, connections: deque[ClientConnection], method: bytes, deadline: float | None
    ) -> ClientConnection:
        """Open a connection like those in `connections`. Wait for the server until `deadline`."""

    def try_to_open_shm(self, limit_s: float | None) -> ShmClientConnection | None:
        """Try once to open a connection that shares memory. Return None if the server can't do that."""
