"""What all connections of one server share: its methods, its threads, where they wait.

listener ─┐
parked ───┼─▶ Poller ──readable──▶ ThreadPool ──▶ Session / Overlap ──▶ Methods
bell ─────┘      ▲──────────────── parked again ─────────┘
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from launchpad.courier import forking
from launchpad.courier.carriers.inprocess import LocalCall
from launchpad.courier.carriers.sockets import Listener
from launchpad.courier.local import visit
from launchpad.courier.local.pace import Paces
from launchpad.courier.protocol import wire
from launchpad.courier.servers.connection import Connection
from launchpad.courier.servers.greeter import Greeter
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import OURS, Methods
from launchpad.courier.servers.overlap import STALL_S
from launchpad.courier.servers.poller import Parked, Poller
from launchpad.courier.servers.pool import Job, ThreadPool
from launchpad.courier.watching.counts import EdgeCounts


class Watched(Protocol):
    """Work that the leader looks at every few milliseconds, in case it holds others back."""

    def relieve(self, now: float) -> Job | None: ...


class _Answer:
    """An answer to be sent, as a job."""

    is_waiting = False
    is_urgent = True  # the work is done: only a few bytes are to be written
    caller = ""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


class House:
    """The running part of a server; lives from start to stop.

    Args:
        listeners: where socket clients arrive; none for a server that is only reached in-process.
    """

    def __init__(
        self,
        name: str,
        token: bytes,
        methods: Methods,
        thread_pool_size: int,
        listeners: Sequence[Listener],
        max_bytes: int = wire.MAX_BYTES,
    ) -> None:
        self.name = name
        self.token = token
        self.methods = methods
        self.incarnation = os.urandom(16)
        self.surroundings = visit.surroundings()
        self.paces = Paces()
        self.max_bytes = max_bytes
        self.counts = EdgeCounts(methods.has)
        self.is_stopping = False  # no call begins any more
        self.is_draining = False
        self.is_inherited = False  # from the process that forked this one, where it serves
        self.began = time.monotonic()
        self.sessions: set[Connection] = set()
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._local_calls: set[LocalCall] = set()
        self._has_closed = False
        self._owed: set[Later] = set()
        self._poller = Poller(listeners, lambda sock: Greeter(sock, self))
        self.pool = ThreadPool(
            name, thread_pool_size, self._poll, self._poller.wake, _look_for_a_ring
        )

    @property
    def is_closing(self) -> bool:
        """Nobody is welcome any more, not even to ask how we are."""
        return self.is_stopping and not self.is_draining

    def open(self) -> None:
        forking.drop_in_child(self)
        self.pool.start()

    def drop_inherited(self) -> None:
        """For a forked child: serving is the parent's business."""
        self.is_inherited = True
        self.paces.quick.clear()
        self._poller.drop_inherited()
        self.methods.loop.drop_inherited()
        for session in tuple(self.sessions):
            session.sock.close()

    def stop_accepting(self) -> None:
        """The listener may be closed after this."""
        self._poller.stop_accepting()

    def close(self, grace_s: float) -> None:
        """What runs has `grace_s` to finish; then everything is closed."""
        with self._lock:
            self.is_stopping, self.is_draining = True, False
            local_calls = tuple(self._local_calls)
        self.pool.dismiss_visitors()
        for call in local_calls:
            call.refuse()
        for session in tuple(self.sessions):
            session.hang_up()  # what has arrived is still read, and answered with NOT_RUN
        deadline = time.monotonic() + grace_s
        self.pool.await_visitors(deadline, visit.this_thread().visitors)
        self._await_owed(deadline)
        self.pool.stop()
        if not self.pool.join(max(0.0, deadline - time.monotonic())):
            self._insist()
        self._await_owed(deadline)  # what the last threads have begun
        self.methods.loop.close()
        self._drain()
        self._abandon_local_calls()
        self._poller.close()
        for session in tuple(self.sessions):
            session.abandon()
        for job in self.pool.take_left():  # iterators whose streams ended with the connections
            job.run()

    def owe(self, later: Later, answer: Callable[[], None]) -> None:
        """Calls `answer()` on a thread of the pool when the outcome has come."""
        with self._lock:
            self._owed.add(later)
        later.then(lambda _: self._pay(later, answer))

    def expect(self, later: Later) -> None:
        """A stop waits for this one, which nobody has to be told of."""
        with self._lock:
            self._owed.add(later)
        later.then(self._owed.discard)

    def park(self, connection: Parked) -> None:
        self._poller.park(connection)

    def watch(self, watched: Watched) -> None:
        with self._lock:
            is_first = not self._watched
            self._watched.add(watched)
        if is_first:
            self._poller.wake()  # the leader may be asleep without a limit

    def unwatch(self, watched: Watched) -> None:
        with self._lock:
            self._watched.discard(watched)

    # What an in-process client needs.

    def admit(self, call: LocalCall) -> bool:
        """Takes the call over; False when the server is stopping."""
        with self._lock:
            if self.is_closing or (self.is_stopping and not call.method.startswith(OURS)):
                return False
            self._local_calls.add(call)
        self.pool.submit(call)
        return True

    def adopt(self, call: LocalCall) -> bool:
        """Looks after a call that a visitor has begun; False when the server has stopped."""
        with self._lock:
            if not self._has_closed:
                self._local_calls.add(call)
            return not self._has_closed

    def welcome(self, sock: socket.socket) -> None:
        """Serves the client at the other end of this socket, as one that has come by the listener."""
        self.park(Greeter(sock, self))

    def forget(self, call: LocalCall) -> None:
        with self._lock:
            self._local_calls.discard(call)

    def _pay(self, later: Later, answer: Callable[[], None]) -> None:
        with self._lock:
            self._owed.discard(later)
        self.pool.submit(_Answer(answer))

    def _await_owed(self, deadline: float) -> None:
        """Waits for outcomes that no thread works on; those that take too long are cancelled."""
        for later in tuple(self._owed):
            if not later.wait(max(0.0, deadline - time.monotonic())):
                self._lose_local_calls()
                later.cancel()

    def _lose_local_calls(self) -> None:
        """Their callers hear that the outcome is unknown, not that a coroutine was cancelled."""
        with self._lock:
            calls = tuple(self._local_calls)
        for call in calls:
            call.abandon()

    def _poll(self, timeout_s: float | None) -> list[Job]:
        if self._watched:
            timeout_s = STALL_S if timeout_s is None else min(timeout_s, STALL_S)
        jobs = self._poller.poll(timeout_s)
        if self._watched:
            jobs += self._relieve()
        return jobs

    def _relieve(self) -> list[Job]:
        with self._lock:
            watched = tuple(self._watched)
        now = time.monotonic()
        return [job for each in watched if (job := each.relieve(now)) is not None]

    def _insist(self) -> None:
        """Cuts the connections whose methods go on: their callers must not wait for them."""
        for session in tuple(self.sessions):
            with contextlib.suppress(OSError):
                session.cut()
        self.pool.join(0.1)

    def _drain(self) -> None:
        """Answers what no thread came to any more. Nothing runs: all of it hears NOT_RUN.

        Nothing blocks either, because every connection has been hung up.
        """
        for job in self.pool.take_left():
            job.run()
        while jobs := self._poller.poll(0.0):
            for job in jobs:
                job.run()

    def _abandon_local_calls(self) -> None:
        with self._lock:
            calls, self._local_calls = self._local_calls, set()
            self._has_closed = True
        for call in calls:
            if call.thread_id != threading.get_ident():  # a method may stop its own server
                call.abandon()


def _look_for_a_ring() -> None:
    from launchpad.courier.clients import rings

    rings.look()
