"""What all connections of one server share: its methods, its threads, its poller.

listener ─┐
parked ───┼─▶ Poller ──readable──▶ ThreadPool ──▶ SerialConnection / PipelinedConnection ──▶ Dispatcher
wake-up ──┘      ▲──────────────── parked again ─────────┘
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launchpad.courier import call_deadlock, call_stack
from launchpad.courier.interruptions import Lock
from launchpad.courier.promise import Promise
from launchpad.courier.server.connection import ServerConnection
from launchpad.courier.server.dispatcher import Dispatcher
from launchpad.courier.server.handshake import Handshake
from launchpad.courier.server.one_thread import QueuedCall
from launchpad.courier.server.one_thread_pool import OneThreadPool
from launchpad.courier.server.pipelined_connection import STALL_S, ReadTurn
from launchpad.courier.server.poller import Poller
from launchpad.courier.server.thread_pool import FunctionJob, Job, ThreadPool
from launchpad.courier.telemetry import registry
from launchpad.courier.telemetry.counters import EdgeCounts

if TYPE_CHECKING:
    from launchpad.courier.server.services import Accepted, Stallable
    from launchpad.courier.transport.stream_socket import Socket


class ServerCore:
    """The running part of a server; there is one from its start to its stop.

    Most of its attributes are the `ServerServices`, some of which connections read for each call. They stand
    here one by one, and not in parts, to be one look-up away.

    Args:
        trusts_this_user: clients that only this user can be need no token: by Unix sockets, and in-process.
    """

    def __init__(
        self,
        name: str,
        token: bytes,
        methods: Dispatcher,
        thread_pool_size: int,
        max_bytes: int,
        *,
        trusts_this_user: bool,
    ) -> None:
        self.name = name
        self.token = token
        self.trusts_this_user = trusts_this_user
        self.methods = methods
        self.incarnation = os.urandom(16)
        self.max_bytes = max_bytes
        self.counts = EdgeCounts(methods.has)
        registry.add_server(self, name, self.counts)
        self.is_stopping = False  # no call begins any more
        self.is_draining = False
        self.is_inherited = False  # from the process that forked this one, where it serves
        self.began = time.monotonic()
        self.connections: set[Accepted] = set()
        self._lock = Lock()
        self._stallable: set[Stallable] = set()
        self._pending_promises: set[Promise] = set()
        self.poller = Poller(lambda sock: Handshake(sock, self))
        arguments = name, thread_pool_size, self._poll, self.poller.wake, _detect_deadlock
        if methods.one_thread is None:
            self.pool = ThreadPool(*arguments)
        else:
            self.pool = OneThreadPool(*arguments, methods.one_thread, _reads_calls)

    @property
    def is_closing(self) -> bool:
        """No request is accepted any more, not even a health check."""
        return self.is_stopping and not self.is_draining

    def drop_inherited(self) -> None:
        """For a forked child: only the parent serves."""
        self.is_inherited = True
        self.poller.drop_inherited()
        self.methods.loop.drop_inherited()
        for connection in tuple(self.connections):
            connection.sock.close()

    def close(self, grace_s: float) -> None:
        """Gives what runs `grace_s` to finish, then closes everything but the event loop."""
        self.is_stopping = True
        self.is_draining = False
        for connection in tuple(self.connections):
            connection.hang_up()  # what has arrived is still read, and answered with NOT_RUN
        deadline = time.monotonic() + grace_s
        self._wait_pending(deadline)
        self.pool.stop()
        if not self.pool.join(max(0.0, deadline - time.monotonic())):
            # Some methods go on: their callers must not wait for them.
            self._cut_connections()
            self.pool.join(0.1)
        self._wait_pending(deadline)  # what the last threads have begun
        self.methods.loop.end_calls()
        # Whatever no thread has taken is answered with NOT_RUN. Nothing blocks, because every
        # connection has been hung up.
        for job in self.pool.take_unstarted():
            job.run()
        while jobs := self.poller.poll(0.0):
            for job in jobs:
                job.run()
        self.poller.close()
        for connection in tuple(self.connections):
            connection.abandon()
        for job in self.pool.take_unstarted():  # iterators whose streams ended with the connections
            job.run()

    def accept(self, sock: Socket) -> None:
        """Serve the client at the other end of a socket. From any thread."""
        self.poller.park(Handshake(sock, self))

    def send_when_done(self, promise: Promise, answer: Callable[[], None]) -> None:
        """Calls `answer()` on a thread of the pool when the outcome is there."""
        self.track(promise)

        def answer_soon(_: Promise) -> None:
            if isinstance(promise, QueuedCall) and promise.has_small_answer:
                answer()  # it fits into the socket: to wake another thread would take longer
            else:
                # Urgent, as the work is done: only a few bytes are to be written.
                self.pool.submit(FunctionJob(answer, is_urgent=True))

        promise.then(answer_soon)

    def track(self, promise: Promise) -> None:
        """Makes a stop wait for an outcome."""
        self._pending_promises.add(promise)
        promise.then(self._pending_promises.discard)

    def watch(self, stallable: Stallable) -> None:
        with self._lock:
            is_first = not self._stallable
            self._stallable.add(stallable)
        if is_first:
            self.poller.wake()  # the leader may be asleep without a limit

    def unwatch(self, stallable: Stallable) -> None:
        with self._lock:
            self._stallable.discard(stallable)

    def _wait_pending(self, deadline: float) -> None:
        """Waits for outcomes that no thread works on; those that take too long are cancelled."""
        for promise in self._pending_promises.copy():
            if not promise.wait(max(0.0, deadline - time.monotonic())):
                # First: its caller is to learn that the outcome is unknown, not that it was cancelled.
                self._cut_connections()
                promise.cancel()

    def _cut_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.cut()

    def _poll(self, timeout_s: float | None) -> list[Job]:
        if self._stallable:
            timeout_s = STALL_S if timeout_s is None else min(timeout_s, STALL_S)
        jobs = self.poller.poll(timeout_s)
        for stallable in self._stallable.copy():
            job = stallable.take_over_if_stalled(time.monotonic())
            if job is not None:
                jobs.append(job)
        return jobs


def _detect_deadlock() -> None:
    call_deadlock.detect(call_stack.find_waits())


def _reads_calls(job: Job) -> bool:
    return isinstance(job, ServerConnection | ReadTurn)
