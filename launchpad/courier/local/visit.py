"""A call that runs where it is made: its caller's thread visits the server.

    caller ── a hop: LocalCall ──▶ thread of the server's pool      whatever may take its time
       └───── a visit ──▶ the method, here and now                  what is known to be quick

The hop there and back costs several times what a short call does. A visit must not be noticed, though:

    whose it is         the method runs in the server's surroundings, a context of its own: what it
                        prints, and the threads that it starts, belong to the server's worker
    what strikes it     interruptions meant for the caller wait until it has ended (`Guard`)
    what it finds       a thread without state of the caller's (thread_state.py)
    how many there are  a visitor takes one of the seats of the server's pool (servers/pool.py)
    how deep they go    visits within visits are hops from MAX_DEPTH on: a thread's stack has an end
    how long it takes   who must not wait for long, because of a deadline, does not visit; a method that
                        takes long is not visited again soon (pace.py), and one that may have to wait for
                        others is not visited at all (trial.py)

What nobody can do is give a visit up: while the method runs, its caller runs it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from launchpad.courier.carriers.inprocess import AwaitedCall
from launchpad.courier.local.pace import QUICK_S
from launchpad.courier.local.thread_state import is_plain
from launchpad.courier.protocol import wire
from launchpad.courier.servers.main_thread import CtrlC
from launchpad.courier.servers.methods import LATER

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House
    from launchpad.courier.servers.methods import Reply
    from launchpad.courier.watching.counts import MethodCounts

R = TypeVar("R")

MAX_DEPTH = 4

_monotonic = time.monotonic
_ERROR, _SMALL = wire.ERROR, wire.SMALL


class Guard(Protocol):
    """Keeps what would interrupt a thread away from the methods that it visits."""

    def shield(self, fn: Callable[..., R], *args: Any) -> R | None:
        """`fn(*args)`; None, and nothing has run, if it cannot be kept from being interrupted."""


class Visitor:
    """One visit of one thread."""


class Thread:
    """What is known of a thread that visits.

    Attributes:
        guard: against what may interrupt it; None if nothing does.
        depth: visits that it is in, one within the other.
    """

    __slots__ = ("depth", "guard", "visitors")

    def __init__(self, guard: Guard | None) -> None:
        self.guard = guard
        self.depth = 0
        self.visitors = [Visitor() for _ in range(MAX_DEPTH)]  # made once, for all its visits


class _Here(threading.local):
    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.thread = Thread(CtrlC() if is_main else None)


_here = _Here()
_make_surroundings: Callable[[], Context] = Context


def this_thread() -> Thread:
    """The calling thread's own."""
    return _here.thread


def provide(make_surroundings: Callable[[], Context]) -> None:
    """From now on a server that starts runs visits in a copy of what `make_surroundings()` returns.

    It is called in the thread that starts the server.
    """
    global _make_surroundings
    _make_surroundings = make_surroundings


def surroundings() -> Context:
    """For a server that starts here and now."""
    return _make_surroundings()


def visit(
    house: House,
    counts: MethodCounts,
    method: bytes,
    body: bytes,
    buffers: Sequence[wire.Chunk],
    max_bytes: int,
) -> Reply | None:
    """Runs a method in this thread; None, and nothing has run, when that is not to be.

    The reply is the caller's to keep; one of kind LATER has an `AwaitedCall` as its body.
    """
    me = _here.thread
    if me.depth == MAX_DEPTH or not is_plain():
        return None
    if me.guard is None or me.depth:
        return _visit(me, house, counts, method, body, buffers, max_bytes)
    return me.guard.shield(_visit, me, house, counts, method, body, buffers, max_bytes)


def _visit(
    me: Thread,
    house: House,
    counts: MethodCounts,
    method: bytes,
    body: bytes,
    buffers: Sequence[wire.Chunk],
    max_bytes: int,
) -> Reply | None:
    depth, pool = me.depth, house.pool
    visitor = me.visitors[depth]
    if not pool.seat(visitor):
        return None
    me.depth = depth + 1
    try:
        began = _monotonic()
        counts.started += 1
        run = house.surroundings.copy().run  # a copy, since nobody can be in a context twice
        reply = run(house.methods.answer, method, body, buffers)
        kind, result, views = reply
        took_s = _monotonic() - began
        if took_s > QUICK_S:
            house.paces.distrust(method, took_s)
        if kind > _ERROR or views or len(result) > _SMALL:
            call = AwaitedCall(method, body, buffers, max_bytes, counts)
            call.go_on(house, began, reply)
            return LATER, call, []
        # As `counts.finish`: a call of it would cost as much again.
        bucket = int(took_s * 1e6).bit_length()
        n_in, n_out = len(body), len(result)
        counts.total_s += took_s
        counts.bytes_in += n_in
        counts.bytes_out += n_out
        counts.buckets[bucket] += 1
        if kind == _ERROR:
            counts.errors += 1
        return reply
    finally:
        me.depth = depth
        pool.unseat(visitor)
