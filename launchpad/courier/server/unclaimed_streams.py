"""Streams that wait to be fetched: results of calls whose connection also serves other calls.

client ──futures.rows()──▶ server        on the connection of all futures
       ◀──STREAM, ticket──
       ──courier/attach(ticket)──▶       on a connection of its own
       ◀──STREAM, ITEM, ITEM, …──
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.telemetry.counters import MethodCounts


class _Unclaimed(NamedTuple):
    outgoing: StreamSender
    owner: object
    call_id: int


class UnclaimedStreams:
    """Streams by ticket, until they are taken or dropped. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unclaimed: dict[bytes, _Unclaimed] = {}

    def put(
        self, outgoing: StreamSender, owner: object, counts: MethodCounts, call_id: int = 0
    ) -> bytes:
        """Keeps a stream of which no item has been taken; returns its ticket.

        Its items are counted where the call was, and not where it is attached.
        """
        outgoing.counts = counts
        ticket = os.urandom(16)  # one of another incarnation must not be valid here
        with self._lock:
            self._unclaimed[ticket] = _Unclaimed(outgoing, owner, call_id)
        return ticket

    def take(self, ticket: bytes) -> StreamSender:
        """The stream of this ticket, which is then no longer valid."""
        with self._lock:
            kept = self._unclaimed.pop(ticket, None)
        if kept is None:
            raise LookupError("this stream is not here: its connection ended, or it was dropped")
        return kept.outgoing

    def drop(self, owner: object, call_id: int | None = None) -> None:
        """Drops the streams of this owner, or of this one call, which no client will fetch."""
        with self._lock:
            dropped = [
                ticket
                for ticket, kept in self._unclaimed.items()
                if kept.owner is owner and call_id in (None, kept.call_id)
            ]
            streams = [self._unclaimed.pop(ticket).outgoing for ticket in dropped]
        for outgoing in streams:
            outgoing.drop()
