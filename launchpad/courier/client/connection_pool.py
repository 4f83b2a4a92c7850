"""The open connections of one client: idle ones, streams, and pipelines for calls that do not wait."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, cast

from launchpad.courier import fork
from launchpad.courier.client.connection import ClientConnection
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.interruptions import Lock
from launchpad.courier.protocol import framing
from launchpad.courier.transport.stream_socket import Socket

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from launchpad.courier.client.pipeline import Pipeline
    from launchpad.courier.client.shm_calls import ShmCalls
    from launchpad.courier.client.shm_connection import ShmClientConnection
    from launchpad.courier.client.stream import StreamCall


class ConnectionPool:
    """The connections that all views of one client share. Safe from any thread."""

    def __init__(self, peer: ServerInfo) -> None:
        self.peer = peer
        self.idle_connections: deque[ClientConnection] = deque()
        # Connections that share memory. Small calls don't use them, because they would be a little slower.
        self.shm_connections: deque[ClientConnection] = (
            deque() if peer.shares_memory or peer.can_move else self.idle_connections
        )
        self.shm_methods: set[bytes] = set()  # methods that have returned something large
        # This lock is held to make a pipeline, so that two threads don't both make one. It is also held to
        # read or change the weak sets: Python raises an error if a set grows while a thread iterates over it.
        self.lock = Lock()
        # Calls with streams, which `close` closes, too.
        self.streams: weakref.WeakSet[StreamCall] = weakref.WeakSet()
        self._pipeline: Pipeline | None = None
        self._aio_pipelines: dict[AbstractEventLoop, Pipeline] = {}
        self._shm_calls: ShmCalls | None = None
        # Includes pipelines to earlier addresses of the server, which end by themselves.
        self._pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()
        self._sockets: weakref.WeakSet[Socket] = weakref.WeakSet()  # idle or in use
        fork.drop_in_child(self)
        # This is tied to the pool, not to the client, because `Client(address).method` outlives its client.
        weakref.finalize(self, _close_all, self.idle_connections, self.shm_connections)

    @property
    def n_open(self) -> int:
        with self.lock:
            n_connections = sum(sock.fileno() >= 0 for sock in self._sockets)
            return n_connections + sum(pipeline.queue.is_connected for pipeline in self._pipelines)

    def add(self, sock: Socket) -> None:
        """Count a new connection as open until its socket is closed."""
        with self.lock:
            self._sockets.add(sock)

    def add_stream(self, call: StreamCall) -> None:
        """Add a call with streams, so that `close` closes it, too."""
        with self.lock:
            self.streams.add(call)

    def get_pipeline(self) -> Pipeline:
        pipeline = self._pipeline
        if pipeline is None:
            from launchpad.courier.client.pipeline import Pipeline

            with self.lock:
                # Another thread may have made the pipeline just now.
                if self._pipeline is None:
                    # By now, another server may run at this address.
                    self.peer.takes_bytes = framing.MAX_BYTES
                    self._pipeline = Pipeline(self.peer)
                    self._pipelines.add(self._pipeline)
                pipeline = self._pipeline
        return pipeline

    def get_aio_pipeline(self, loop: AbstractEventLoop) -> Pipeline:
        """Return the pipeline of the calls that this event loop waits for."""
        pipeline = self._aio_pipelines.get(loop)
        if pipeline is None:
            from launchpad.courier.client.aio_pipeline import AioPipeline

            with self.lock:
                closed_pipelines = []
                for other_loop in tuple(self._aio_pipelines):
                    if other_loop.is_closed():
                        closed_pipelines.append(self._aio_pipelines.pop(other_loop))
                pipeline = self._aio_pipelines[loop] = AioPipeline(self.peer, loop)
                self._pipelines.add(pipeline)
            for closed_pipeline in closed_pipelines:
                closed_pipeline.close()
        return pipeline

    def get_shm_calls(self) -> ShmCalls:
        shm_calls = self._shm_calls
        if shm_calls is None:
            from launchpad.courier.client.shm_calls import ShmCalls

            with self.lock:
                shm_calls = self._shm_calls = self._shm_calls or ShmCalls(self.peer)
        return shm_calls

    def take_shm(self) -> ShmClientConnection | None:
        """Take an idle connection that shares memory and is not stale. Return None if none is left."""
        while True:
            try:
                connection = self.shm_connections.pop()
            except IndexError:
                return None
            if connection.is_stale is None or not connection.is_stale(connection.sock):
                return cast("ShmClientConnection", connection)
            connection.close()

    def close(self) -> None:
        with self.lock:
            shm_calls = self._shm_calls
            self._shm_calls = None
        # Close this before the pipelines, because a call that shares memory may move to a pipeline. If it
        # moved after the pipelines were closed, it would open another pipeline.
        if shm_calls is not None:
            shm_calls.close()
        with self.lock:
            self._pipeline = None
            self._aio_pipelines.clear()
            pipelines = tuple(self._pipelines)
            streams = tuple(self.streams)
        for pipeline in pipelines:
            pipeline.close()
        for stream in streams:
            stream.abort()
        _close_all(self.idle_connections, self.shm_connections)

    def drop_inherited(self) -> None:
        self.lock = Lock()
        # This includes connections of calls that the parent's threads wait for.
        for sock in tuple(self._sockets):
            sock.close()
        self._sockets = weakref.WeakSet()
        self._pipeline = None
        self._aio_pipelines = {}
        for pipeline in tuple(self._pipelines):
            pipeline.drop_inherited()
        self._pipelines = weakref.WeakSet()
        if self._shm_calls is not None:
            self._shm_calls.drop_inherited()
        self._shm_calls = None
        for stream in tuple(self.streams):
            stream.drop_inherited()
        _close_all(self.idle_connections, self.shm_connections)


class MovingConnectionPool(ConnectionPool):
    """The pool of a client whose server may move. Calls made after a move go to the new address.

    Calls that are in flight to the old address end there, on their own connection.
    """

    def add(self, sock: Socket) -> None:
        """Count a new connection. Close idle connections to old addresses, which may never be used again."""
        super().add(sock)
        for connections in (self.idle_connections, self.shm_connections):
            with contextlib.suppress(IndexError):  # other threads take connections at the same time
                for _ in range(len(connections)):
                    connection = connections.popleft()
                    if connection.address == self.peer.address:
                        connections.append(connection)
                    else:
                        connection.close()

    def get_pipeline(self) -> Pipeline:
        pipeline = super().get_pipeline()
        if not self._is_obsolete(pipeline):
            return pipeline
        with self.lock:
            if self._pipeline is pipeline:
                self._pipeline = None
        return super().get_pipeline()

    def get_aio_pipeline(self, loop: AbstractEventLoop) -> Pipeline:
        pipeline = super().get_aio_pipeline(loop)
        if not self._is_obsolete(pipeline):
            return pipeline
        with self.lock:
            self._aio_pipelines.pop(loop, None)
        return super().get_aio_pipeline(loop)

    def _is_obsolete(self, pipeline: Pipeline) -> bool:
        """Return True if the pipeline leads to an old address. Then it ends once nothing is in flight."""
        reader = pipeline.reader
        address = None if reader is None else reader.address
        if reader is None or address is None or not self.peer.has_moved_from(address):
            return False
        reader.retire()
        return True


def _close_all(*idle_connections: deque[ClientConnection]) -> None:
    for connections in idle_connections:
        with contextlib.suppress(IndexError):
            while True:
                connections.pop().close()
