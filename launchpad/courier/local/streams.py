"""The calls of a client to a server in its own process that have streams: over pairs of sockets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import Peer
from launchpad.courier.watching.counts import Counts

if TYPE_CHECKING:
    from launchpad.courier.clients.channel import SocketChannel
    from launchpad.courier.streams.stream import Stream
    from launchpad.courier.streams.stream_calls import Settle


class LocalStreams:
    """What all views of one client share for them. Opens nothing before it is needed."""

    def __init__(self, peer: Peer, counts: Counts) -> None:
        self._peer = peer
        self._counts = counts
        self._lock = threading.Lock()
        self._channel: SocketChannel | None = None

    @property
    def n_connections(self) -> int:
        return 0 if self._channel is None else self._channel.n_connections

    def channel(self, options: Options, trace: bytes) -> SocketChannel:
        """For calls with these options."""
        from launchpad.courier.clients.channel import SocketChannel

        with self._lock:
            if self._channel is None:
                self._channel = SocketChannel(self._peer, options, self._counts)
        view = self._channel.with_options(options)
        return view.with_trace(trace) if trace else view

    def attach(self, channel: SocketChannel, method: bytes, ticket: bytes) -> Stream:
        """The stream that a call was answered with."""
        from launchpad.courier.streams.stream_calls import attach

        return attach(channel, method, ticket)

    def attach_apart(
        self, channel: SocketChannel, method: bytes, ticket: bytes, settle: Settle
    ) -> None:
        """The same for a future, which another thread settles."""
        from launchpad.courier.streams.stream_calls import attach_apart

        attach_apart(channel, method, ticket, settle)

    def close(self) -> None:
        with self._lock:
            channel = self._channel
        if channel is not None:
            channel.close()
