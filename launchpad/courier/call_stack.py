"""A record for each thread of the calls that it answers and the calls that it waits for.

    Dispatcher.answer  A answers f …
      ⋮   the user's code
      call_and_wait    … and waits for g of B        the innermost entry

With these records a server can say which of its methods wait for what (call_deadlock.py asks). A thread
writes only its own record, with one assignment at a time, so that others may read it without a lock.
Recording a call takes less than 0.1 µs.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from launchpad.courier import fork

Place = tuple[str, str]  # address of a server, method
Edge = tuple[Place, Place, str, str]  # from, to, and the names of the two servers

# The prefix of courier's own methods. A server answers them at once, so a wait for one is never part of a
# deadlock.
_OURS = b"courier/"


# Not frozen: that would cost more than everything else that happens to a context.
@dataclass(slots=True)
class CallContext:
    """The hidden part of a call: its method doesn't see it, but the calls that the method makes inherit it.

    Attributes:
        deadline: when the caller gives up, by `time.monotonic()`; None for never.
        trace: the caller's span; empty if it does not trace.
        recorded: the call's number, if its caller records it; not inherited.
    """

    deadline: float | None
    trace: bytes = b""
    recorded: bytes = b""

    def limit(self, deadline: float | None) -> float | None:
        """Return the earlier of the two deadlines: a result that comes after ours is of no use."""
        if self.deadline is None or deadline is None:
            return self.deadline if deadline is None else deadline
        return min(self.deadline, deadline)


# Coroutines, and the threads that they use, see it too as long as they copy their context.
current_call: ContextVar[CallContext | None] = ContextVar("courier_serving", default=None)


class Answering(Protocol):
    """A server, as the record of a call that it answers names it."""

    server: str
    addresses: tuple[str, ...]


class Awaited(Protocol):
    """The server that a thread waits for, as its client knows it."""

    address: str
    own_token: bytes | None
    fetch_waits: Callable[[str, bytes | None], list[Edge]]

    @property
    def label(self) -> str: ...


Wait = tuple[Edge, Awaited]
# The outer entry, the server that answers the call here or the server that the thread waits for, the method.
Entry = tuple["Entry | None", Answering | None, Awaited | None, bytes]


@dataclass(slots=True)
class CallRecord:
    """The calls of one thread, each nested in the one before."""

    innermost: Entry | None = None


# By thread. The record of a thread that has ended is empty; it is replaced when the identifier is reused.
_records: dict[int, CallRecord] = {}


class _Here(threading.local):
    def __init__(self) -> None:
        self.record = _records[threading.get_ident()] = CallRecord()


#: `here.record` is the calling thread's.
here = _Here()


@contextlib.contextmanager
def waiting_for(peer: Awaited, method: bytes) -> Iterator[None]:
    """Record, within the block, that the calling thread waits for `method` of `peer`.

    Channels whose calls are quick don't use this: they contain the same lines.
    """
    record = here.record
    outer = record.innermost
    try:
        record.innermost = outer, None, peer, method
        yield
    finally:
        record.innermost = outer


class CallQueue(Protocol):
    """A queue of calls that wait for their turn."""

    def waits(self) -> list[Edge]: ...


queues: weakref.WeakSet[CallQueue] = weakref.WeakSet()


def edges() -> list[Edge]:
    """Return all waits of this process, those in queues included: a server's answer to `framing.WAITS`."""
    result = [edge for edge, _ in find_waits()]
    for queue in list(queues):
        result += queue.waits()
    return result


def find_waits(record: CallRecord | None = None) -> list[Wait]:
    """Return the waits of one thread, the innermost first; without a record, those of all threads."""
    waits: list[Wait] = []
    for thread_record in list(_records.values()) if record is None else (record,):
        entry = thread_record.innermost
        awaited: tuple[Awaited, str] | None = None
        while entry is not None:
            entry, answering, peer, method = entry
            name = method.decode(errors="replace")
            if awaited is None:
                # A server without an address has not been found yet.
                if peer is not None and peer.address and not method.startswith(_OURS):
                    awaited = peer, name
            elif answering is not None:
                # A server may have several addresses: callers wait for it at any of them.
                to, to_name = awaited
                for address in answering.addresses:
                    edge = (address, name), (to.address, to_name), answering.server, to.label
                    waits.append((edge, to))
                awaited = None
    return waits


# A forked child has none of these threads.
fork.reset_in_child(_records.clear)
