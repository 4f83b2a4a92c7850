"""Records, one per thread, of the calls that the thread answers and the calls that it waits for.

    Dispatcher.answer  A answers f …
      ⋮   the user's code
      call_and_wait    … and waits for g of B        the innermost entry

From these records a server can report which calls its methods wait for; call_deadlock.py asks for them. A
thread writes only its own record, with one assignment at a time, so other threads can read it without a lock.
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

# The prefix of courier's own methods. A server answers these methods at once, so waiting for them is never
# part of a deadlock.
_OURS = b"courier/"


# This class isn't frozen: creating a frozen instance takes longer than everything else that is done with it.
@dataclass(slots=True)
class CallContext:
    """The hidden part of a call. The method doesn't see it, but the calls that the method makes inherit it.

    Attributes:
        deadline: when the caller gives up, by `time.monotonic()`; None for never.
        trace: the caller's span; empty if the caller does not trace.
        recorded: the call's number; empty if the caller does not record the call. It isn't inherited.
    """

    deadline: float | None
    trace: bytes = b""
    recorded: bytes = b""

    def limit(self, deadline: float | None) -> float | None:
        """Return the earlier of `deadline` and this call's own deadline.

        After its own deadline the call has no use for a result.
        """
        if self.deadline is None or deadline is None:
            return self.deadline if deadline is None else deadline
        return min(self.deadline, deadline)


# The call that runs here. Coroutines, and the threads that they use, see it too if they copy their context.
current_call: ContextVar[CallContext | None] = ContextVar("courier_serving", default=None)


class Answering(Protocol):
    """A server that answers a call, as the record of the call describes it."""

    server: str
    addresses: tuple[str, ...]


class Awaited(Protocol):
    """A server that a thread waits for, as the thread's client knows it."""

    address: str
    own_token: bytes | None
    fetch_waits: Callable[[str, bytes | None], list[Edge]]

    @property
    def label(self) -> str: ...


Wait = tuple[Edge, Awaited]
# The enclosing entry; the server if it answers the call in this thread, else None; the server if this thread
# waits for it, else None; the method.
Entry = tuple["Entry | None", Answering | None, Awaited | None, bytes]


@dataclass(slots=True)
class CallRecord:
    """The calls of one thread, each nested in the one before."""

    innermost: Entry | None = None


# The records by thread identifier. When a thread has ended, its record is empty and stays until a new thread
# gets the same identifier.
_records: dict[int, CallRecord] = {}


class _Here(threading.local):
    def __init__(self) -> None:
        self.record = _records[threading.get_ident()] = CallRecord()


#: `here.record` is the calling thread's.
here = _Here()


@contextlib.contextmanager
def waiting_for(peer: Awaited, method: bytes) -> Iterator[None]:
    """Record, within the block, that the calling thread waits for `method` of `peer`.

    Channels whose calls are quick don't use this function: they contain the same lines themselves.
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
    """Return all waits of this process, including those in queues: the answer to `framing.WAITS`."""
    result = [edge for edge, _ in find_waits()]
    for queue in list(queues):
        result += queue.waits()
    return result


def find_waits(record: CallRecord | None = None) -> list[Wait]:
    """Return the waits in `record`, the innermost first. Without `record`, return those of all threads."""
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


# In a forked child these threads don't exist.
fork.reset_in_child(_records.clear)
