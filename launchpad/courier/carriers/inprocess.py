"""Calls between threads of one process, without a socket.

Arguments and results go through the codec all the same, and buffers are copied: a program must not
work in threads, where everything could be shared, and break in processes. A method runs on the
server's own threads, so that deadlines, stop and growth mean the same as over a socket; one that is
known to be quick may run in its caller's (local/visit.py).
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier.clients.patience import Patience
from launchpad.courier.protocol import wire
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import LATER, Reply, encode_outcome, fit
from launchpad.courier.servers.serving import Serving
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.clients.peer import Peer
    from launchpad.courier.servers.house import House

PREFIX = "inproc:"

_LOOK_S = 1.0  # who waits that long looks for the reason, and again after as long

LOST = 255  # a reply's kind, never on the wire: the call has begun, and nobody will hear its end

# One process has one set of in-process addresses, as one host has one set of ports.
_lock = threading.Lock()
_houses: dict[str, House] = {}

find = _houses.get  # the server that has an address, if one does

_monotonic = time.monotonic


def publish(address: str, house: House) -> None:
    """Makes `house` reachable at `address`; OSError when another server has it."""
    with _lock:
        if address in _houses:
            raise OSError(errno.EADDRINUSE, "a living server has this address; stop it", address)
        _houses[address] = house


def withdraw(address: str, house: House) -> None:
    """Undoes `publish`; nothing happens if another server has the address."""
    with _lock:
        if _houses.get(address) is house:
            del _houses[address]


class LocalCall:
    """One call on its way through a server of this process; a job for its threads.

    `finish` is called exactly once, when `reply` is there: what the method has come to, or a NOT_RUN
    or LOST. Which of them is decided by whoever is first: the thread that ran it, the server's stop,
    the caller's deadline.

    Args:
        max_bytes: the largest result that the caller takes.
        counts: the server's, of this method and caller.
        on_behalf_of: what the calls that the method makes inherit, with the deadline.
    """

    is_waiting = False
    caller = ""
    is_urgent = False

    def __init__(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[wire.Chunk],
        max_bytes: int,
        counts: MethodCounts,
        on_behalf_of: Serving | None = None,
    ) -> None:
        self.method = method
        self.deadline = on_behalf_of.deadline if on_behalf_of is not None else None
        self.has_begun = False
        self.thread_id = 0  # of the thread that runs it
        self.reply: Reply = (wire.NOT_RUN, b"", [])
        self._arguments: tuple[bytes, Sequence[wire.Chunk]] = body, buffers
        self._n_in = wire.size(body, buffers) if buffers else len(body)
        self._max_bytes = max_bytes
        self._counts = counts
        self._on_behalf_of = on_behalf_of
        self._began = 0.0
        self._house: House | None = None
        self._later: Later | None = None
        self._state_lock = threading.Lock()
        self._is_settled = False

    def finish(self) -> None:
        """The reply is there."""
        raise NotImplementedError

    def enter(self, house: House) -> bool:
        """Gets in line for a thread of the server; False when it is stopping."""
        self._house = house
        self.is_urgent = self.method in house.methods.urgent
        return house.admit(self)

    def run(self) -> None:
        """On a thread of the server: the call."""
        house = self._house
        assert house is not None
        self.thread_id = threading.get_ident()
        if not self._begin():
            house.forget(self)
            return
        (body, buffers), self._arguments = self._arguments, (b"", ())
        if house.paces.is_on_trial(self.method):
            reply = self._try_out(house, body, buffers)
        else:
            reply = self._answer(house, body, buffers)
            self._note(house, reply, may_wait=False)
        del body, buffers
        self._take(house, reply)

    def go_on(self, house: House, began: float, reply: Reply) -> None:
        """Takes over from a visit, whose reply is not just a few bytes."""
        self.has_begun = True
        self._arguments = b"", ()
        self._began = began
        self._house = house
        if reply[0] > wire.ERROR and not house.adopt(self):
            self.abandon()  # a server that has stopped will not see the end of it
        self._take(house, reply)

    def settle(self, kind: int, body: bytes, buffers: list[memoryview]) -> None:
        """Gives the call its one outcome; nothing happens when it has one already."""
        with self._state_lock:
            if self._is_settled:
                return
            self._is_settled = True
            if kind == wire.NOT_RUN and self.has_begun:
                kind = LOST
            self.reply = kind, body, buffers
            later = self._later if kind == LOST else None
        if later is not None:
            later.cancel()  # nobody is there to hear it
        self.finish()

    def give_up(self) -> None:
        """The caller does not wait any longer: if the call has not begun, it will not."""
        self.settle(wire.NOT_RUN, wire.LATE, [])

    def refuse(self) -> None:
        """The server stops: if the call has not begun, it will not."""
        with self._state_lock:
            if self.has_begun:
                return
        self.abandon()

    def abandon(self) -> None:
        """The server stops: the call is lost if it has begun, and certainly not run if not."""
        self.settle(wire.NOT_RUN, wire.STOPPING, [])

    def _begin(self) -> bool:
        self._began = _monotonic()
        if self.deadline is not None and self.deadline < self._began:
            self.give_up()
        with self._state_lock:
            self.has_begun = not self._is_settled
        if self.has_begun:
            self._counts.started += 1
        return self.has_begun

    def _try_out(self, house: House, body: bytes, buffers: Sequence[wire.Chunk]) -> Reply:
        from launchpad.courier.local.trial import Trial

        trial = Trial()
        reply = trial.run(self._answer, house, body, buffers)
        if trial.is_valid:
            self._note(house, reply, may_wait=trial.may_wait)
        return reply

    def _note(self, house: House, reply: Reply, *, may_wait: bool) -> None:
        took_s = _monotonic() - self._began
        is_over = reply[0] <= wire.ERROR
        house.paces.note(self.method, took_s, is_over=is_over, may_wait=may_wait)

    def _answer(self, house: House, body: bytes, buffers: Sequence[wire.Chunk]) -> Reply:
        if self._on_behalf_of is None:
            return house.methods.answer(self.method, body, buffers)
        return house.methods.answer_for(self._on_behalf_of, self.method, body, buffers)

    def _take(self, house: House, reply: Reply) -> None:
        """The method has come to this."""
        if reply[0] != LATER:
            self._answer_with(house, reply)
            return
        with self._state_lock:
            self._later = reply[1]
            is_settled = self._is_settled
        if is_settled:
            self._later.cancel()
        house.owe(self._later, partial(self._answer_later, house, self._later))

    def _answer_later(self, house: House, later: Later) -> None:
        self._answer_with(house, encode_outcome(later))

    def _answer_with(self, house: House, reply: Reply) -> None:
        if reply[0] == wire.STREAM:  # fetched over a connection (pairs.py)
            ticket = house.methods.tickets.put(reply[1], self, self._counts)
            reply = wire.STREAM, ticket, []
        kind, body, buffers = _detach(reply, self._max_bytes)
        if kind == wire.ERROR:
            self._counts.errors += 1
        n_out = wire.size(body, buffers) if buffers else len(body)
        self._counts.finish(_monotonic() - self._began, self._n_in, n_out)
        self.settle(kind, body, buffers)
        if kind == wire.STREAM and self.reply[0] != wire.STREAM:
            house.methods.tickets.drop(self)  # nobody waits for it any more
        house.forget(self)


class AwaitedCall(LocalCall):
    """A call whose caller waits for it, in its own thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        self._done.release()

    def wait(self, peer: Peer) -> Reply:
        """The reply. Past the deadline, and when this is interrupted, the call is given up."""
        try:
            if not self._done.acquire(timeout=self._next_look()):
                self._wait_long(Patience(peer, self.method))
        except BaseException:
            self.give_up()
            raise
        return self.reply

    def _wait_long(self, patience: Patience) -> None:
        while self.deadline is None or self.deadline > _monotonic():
            patience.look()
            if self._done.acquire(timeout=self._next_look()):
                return
        self.give_up()

    def _next_look(self) -> float:
        left = _LOOK_S if self.deadline is None else self.deadline - _monotonic()
        return max(0.0, min(left, _LOOK_S))


def _detach(reply: Reply, max_bytes: int) -> Reply:
    """The reply as a socket would deliver it: within the caller's limit, with buffers of its own."""
    if not reply[2] and len(reply[1]) <= wire.SMALL:
        return reply
    from launchpad.courier.values.memory import copies  # late: most servers are called over sockets

    try:
        kind, body, views = fit(reply, max_bytes)
        return kind, body, copies(views)
    except MemoryError as error:
        return wire.ERROR, codec.encode_error(error), []
