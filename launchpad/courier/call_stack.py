"""The calls that each thread answers, what is known of them, and which ones it waits for meanwhile.

    Dispatcher.answer  A answers f …
      ⋮   the user's code
      call_and_wait    … and waits for g of B        the innermost entry

So a server can say, when it is asked, which of its methods wait for what (call_deadlock.py asks). A thread
writes its own record only, with one assignment at a time, so that others may read it without a lock. To note
a call takes less than 0.1 µs.
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
Edge = tuple[Place, Place, str, str]  # from, to, and what the two servers are called

_OURS = b"courier/"  # questions about a server itself are answered at once


@dataclass(slots=True)  # not frozen: that would cost more than all the rest of it
class CallContext:
    """What a method does not see of the call that it answers, and the calls that it makes inherit.

    Attributes:
        deadline: when the caller gives up, by `time.monotonic()`; None for never.
        trace: the caller's span; empty if it does not trace.
        recorded: the call's number, if its caller records it; not inherited.
    """

    deadline: float | None
    trace: bytes = b""
    recorded: bytes = b""

    def limit(self, deadline: float | None) -> float | None:
        """The earlier of the two deadlines: what comes after ours is of no use."""
        if self.deadline is None or deadline is None:
            return self.deadline if deadline is None else deadline
        return min(self.deadline, deadline)


# Coroutines and the threads that they use see it too, as long as they copy their context.
current_call: ContextVar[CallContext | None] = ContextVar("courier_serving", default=None)


class Answering(Protocol):
    """What answers a call."""

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
# What it is within, the server that answers it here or the one that is waited for, its method.
Entry = tuple["Entry | None", Answering | None, Awaited | None, bytes]


@dataclass(slots=True)
class CallRecord:
    """The calls of one thread, each within the one before."""

    innermost: Entry | None = None


# By thread. That of a thread which has ended is empty, and is replaced when its identifier is used again.
_records: dict[int, CallRecord] = {}


class _Here(threading.local):
    def __init__(self) -> None:
        self.record = _records[threading.get_ident()] = CallRecord()


#: `here.record` is the calling thread's.
here = _Here()


@contextlib.contextmanager
def waiting_for(peer: Awaited, method: bytes) -> Iterator[None]:
    """Within it the calling thread waits for that. Channels whose calls are quick write it out."""
    record = here.record
    outer = record.innermost
    try:
        record.innermost = outer, None, peer, method
        yield
    finally:
        record.innermost = outer


class CallQueue(Protocol):
    """Calls that wait for their turn."""

    def waits(self) -> list[Edge]: ...


queues: weakref.WeakSet[CallQueue] = weakref.WeakSet()


def edges() -> list[Edge]:
    """What a server answers when it is asked for it."""
    found = [edge for edge, _ in find_waits()]
    for queue in list(queues):
        found += queue.waits()
    return found


def find_waits(record: CallRecord | None = None) -> list[Wait]:
    """What the calls of one thread wait for, the innermost first; without a record, those of all threads."""
    found: list[Wait] = []
    for each in list(_records.values()) if record is None else (record,):
        entry = each.innermost
        awaited: tuple[Awaited, str] | None = None
        while entry is not None:
            entry, answering, peer, method = entry
            name = method.decode(errors="replace")
            if awaited is None:
                # Without an address it has not been found yet.
                if peer is not None and peer.address and not method.startswith(_OURS):
                    awaited = peer, name
            elif answering is not None:
                # A server may have several addresses: callers wait for it at any of them.
                to, to_name = awaited
                found += [
                    (((address, name), (to.address, to_name), answering.server, to.label), to)
                    for address in answering.addresses
                ]
                awaited = None
    return found


# None of those threads is in the child.
fork.reset_in_child(_records.clear)
