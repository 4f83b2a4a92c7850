"""The rendezvous: a courier server by which the ranks of a group find each other and notice lost ranks.

    rank ══attend()══▶ rendezvous      a stream that stays open: of Formed, then of the events after it
         ──leave()───▶                 the rank has returned or raised
         ──report()──▶                 the rank has found that the generation cannot go on

If a rank's stream ends, the rank has ended, no matter why: even the connections of a killed process are
closed by the kernel. The rendezvous outlives generations and the workers of its group. It ends with the
program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from launchpad.address import COURIER, Address
from launchpad.collectives.membership import Broken, Event, Lost, Membership, Session
from launchpad.collectives.store import StoreServer
from launchpad.nodes.base import Node
from launchpad.nodes.courier import CourierHandle, Serving, new_server, start
from launchpad.runtime import context
from launchpad.runtime.executable import Executable

_log = logging.getLogger("launchpad.collectives")


class Rendezvous(StoreServer):
    """The served object. All its methods run on its server's event loop, so it doesn't need locks."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._membership = Membership(size)
        self._queues: dict[Session, asyncio.Queue[Event]] = {}
        self._sessions: dict[str, Session] = {}

    async def attend(
        self,
        key: str,
        replica: int,
        worker: str,
        attempt: int,
        host: str,
        min_replicas: int | None,
    ) -> AsyncIterator[Event]:
        """Take part until the stream is closed, and yield the events one after another.

        Args:
            key: A random name of this session, for `leave`.
            min_replicas: The `min_replicas` of the group's policy.
        """
        session = Session(replica, worker, attempt, host)
        queue = asyncio.Queue[Event]()
        self._queues[session] = queue
        self._sessions[key] = session
        self._membership.min_replicas = min_replicas
        try:
            self._publish(self._membership.join(session))
            while True:
                yield await queue.get()
        finally:
            del self._queues[session], self._sessions[key]
            self._publish(self._membership.leave(session, "has died"))

    async def leave(self, key: str, why: str, has_returned: bool) -> None:
        """End a session, because the function of its worker has ended."""
        session = self._sessions.get(key)
        if session is not None:
            self._publish(self._membership.leave(session, why, has_returned=has_returned))

    async def report(self, event: Lost | Broken) -> None:
        """Take the report of a rank that the generation cannot go on."""
        self._publish(self._membership.report(event))

    async def absent(self) -> list[int]:
        """Return the replicas for which the next generation waits."""
        return self._membership.absent()

    def _publish(self, events: list[tuple[Session, Event]]) -> None:
        # All sessions get the same event, but it is logged only once.
        for event in dict.fromkeys(event for _, event in events):
            _log.debug("%s", event)
        for session, event in events:
            queue = self._queues.get(session)
            if queue is not None:
                queue.put_nowait(event)
        self._end_store(self._membership.last_ended)


class RendezvousNode(Node[CourierHandle[Rendezvous]]):
    """The node that serves the rendezvous of one group. The group's first node adds it."""

    stops_last = True

    def __init__(self, members: list[Any]) -> None:
        super().__init__()
        # This list grows as nodes are added.
        self._members = members
        self._address = self.allocate_address(Address("courier", kind=COURIER))

    def create_handle(self) -> CourierHandle[Rendezvous]:
        return CourierHandle(self, self._address)

    def to_executable(self) -> Executable:
        return ServeRendezvous(self._address, len(self._members))

    def __repr__(self) -> str:
        return "Rendezvous"


@dataclass
class ServeRendezvous(Serving):
    """An executable that serves a rendezvous until the program stops."""

    address: Address
    size: int

    def open(self) -> None:
        with context.current().stop.interruption.forbidden():
            self._server = new_server(self.address)
            self._server.bind_object(Rendezvous(self.size))
            start(self._server, self.address)
