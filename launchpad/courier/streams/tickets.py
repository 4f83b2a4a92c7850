"""Streams that wait to be fetched: results of calls whose connection they cannot have to themselves.

client ──futures.rows()──▶ server        on the connection of all futures
       ◀──STREAM, ticket──
       ──courier/attach(ticket)──▶       on a connection of its own
       ◀──STREAM, ITEM, ITEM, …──
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from launchpad.courier.streams.outgoing import Outgoing
from launchpad.courier.watching.counts import MethodCounts


class _Kept(NamedTuple):
    outgoing: Outgoing
    owner: object
    call_id: int


class Tickets:
    """Streams by ticket, until they are taken or dropped. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}

    def put(
        self, outgoing: Outgoing, owner: object, counts: MethodCounts, call_id: int = 0
    ) -> bytes:
        """Keeps a stream, which nobody has begun to iterate over; returns its ticket.

        Its items are counted where the call was, and not where it is attached.
        """
        outgoing.counts = counts
        ticket = os.urandom(16)  # another incarnation's must not be mistaken for one of ours
        with self._lock:
            self._kept[ticket] = _Kept(outgoing, owner, call_id)
        return ticket

    def take(self, ticket: bytes) -> Outgoing:
        """The stream of this ticket, which is then of no more use."""
        with self._lock:
            kept = self._kept.pop(ticket, None)
        if kept is None:
            raise LookupError("this stream is not here: its connection ended, or it was dropped")
        return kept.outgoing

    def drop(self, owner: object, call_id: int | None = None) -> None:
        """Nobody will come for the streams of this owner, or of this one call."""
        with self._lock:
            dropped = [
                ticket
                for ticket, kept in self._kept.items()
                if kept.owner is owner and call_id in (None, kept.call_id)
            ]
            streams = [self._kept.pop(ticket).outgoing for ticket in dropped]
        for outgoing in streams:
            outgoing.drop()
