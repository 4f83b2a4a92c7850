"""The services that a server provides to its connections, which know nothing else about the server.

ServerCore ──implements──▶ ServerServices ◀──needs── Handshake, SerialConnection, PipelinedConnection
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from launchpad.courier.promise import Promise
from launchpad.courier.server.dispatcher import Dispatcher
from launchpad.courier.server.poller import Parked, Poller
from launchpad.courier.server.thread_pool import Job, ThreadPool
from launchpad.courier.telemetry.counters import EdgeCounts


class Accepted(Parked, Protocol):
    """A connection that the server keeps track of, in order to end it: a ServerConnection."""

    def hang_up(self) -> None: ...

    def cut(self) -> None: ...

    def abandon(self) -> None: ...


class Stallable(Protocol):
    """Something that may hold up other calls. The pool's leader checks it every few milliseconds."""

    def take_over_if_stalled(self, now: float) -> Job | None: ...


class ServerServices(Protocol):
    """The part of a server that connections use; `ServerCore` documents each member."""

    name: str
    token: bytes
    trusts_this_user: bool
    incarnation: bytes
    max_bytes: int
    methods: Dispatcher
    counts: EdgeCounts
    poller: Poller
    pool: ThreadPool
    connections: set[Accepted]
    is_stopping: bool

    @property
    def is_closing(self) -> bool: ...

    def send_when_done(self, promise: Promise, answer: Callable[[], None]) -> None: ...

    def track(self, promise: Promise) -> None: ...

    def watch(self, stallable: Stallable) -> None: ...

    def unwatch(self, stallable: Stallable) -> None: ...
