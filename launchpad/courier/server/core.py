"""The state that all connections of one server share: its methods, its threads and its poller.

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
    """The running part of a server, from its start to its stop.

    Most of its attributes make up the `ServerServices`. Connections read some of them for each call. So they
    are attributes of this one object, where a single look-up finds them.

    Args:
        trusts_this_user: True if clients need no token on Unix sockets and in-process, where only this
            user can connect.
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
        self.is_stopping = False  # True: no more calls begin
        self.is_draining = False
        self.is_inherited = False  # True in a forked child: only its parent serves
        self.began = time.monotonic()
        self.connections: set[Accepted] = set()
        # This lock is held to change `_stallable`. If several threads add the first stallables, only one of
        # the threads finds the set empty.
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
        """True if the server accepts no more requests, not even health checks."""
        return self.is_stopping and not self.is_draining

    def drop_inherited(self) -> None:
        """Close the sockets that a forked child inherited: only the parent serves."""
        self.is_inherited = True
        self.poller.drop_inherited()
        self.methods.loop.drop_inherited()
        for connection in tuple(self.connections):
            connection.sock.close()

    def close(self, grace_s: float) -> None:
        """Give running calls `grace_s` to finish, then close everything except the event loop."""
        self.is_stopping = True
        self.is_draining = False
        for connection in tuple(self.connections):
            # The connection's thread still reads the calls that have arrived, and answers them with NOT_RUN.
            connection.hang_up()
        deadline = time.monotonic() + grace_s
        self._wait_pending(deadline)
        self.pool.stop()
        if not self.pool.join(max(0.0, deadline - time.monotonic())):
            # Some methods still run. Cut the connections, so that callers don't wait for these methods.
            self._cut_connections()
            self.pool.join(0.1)
        # The last threads may have begun calls whose outcomes come later.
        self._wait_pending(deadline)
        self.methods.loop.end_calls()
        # Send NOT_RUN as the answer to the calls that no thread has taken. Nothing blocks here, because
        # reading has ended on every connection.
        for job in self.pool.take_unstarted():
            job.run()
        jobs = self.poller.poll(0.0)
        while jobs:
            for job in jobs:
                job.run()
            jobs = self.poller.poll(0.0)
        self.poller.close()
        for connection in tuple(self.connections):
            connection.abandon()
        # These jobs close the iterators whose streams ended with the connections.
        for job in self.pool.take_unstarted():
            job.run()

    def accept(self, sock: Socket) -> None:
        """Start serving the client at the other end of a socket. Safe from any thread."""
        self.poller.park(Handshake(sock, self))

    def send_when_done(self, promise: Promise, answer: Callable[[], None]) -> None:
        """Call `answer()` when the promise is done, usually on a thread of the pool."""
        self.track(promise)

        def answer_soon(_: Promise) -> None:
            if isinstance(promise, QueuedCall) and promise.has_small_answer:
                # The answer fits into the socket's buffer, and waking another thread would take longer.
                answer()
            else:
                # Urgent, because the work is done and only the answer is left to write.
                self.pool.submit(FunctionJob(answer, is_urgent=True))

        promise.then(answer_soon)

    def track(self, promise: Promise) -> None:
        """Make a stop of the server wait for this outcome."""
        self._pending_promises.add(promise)
        promise.then(self._pending_promises.discard)

    def watch(self, stallable: Stallable) -> None:
        with self._lock:
            is_first = not self._stallable
            self._stallable.add(stallable)
        if is_first:
            # The leader may be polling without a time limit.
            self.poller.wake()

    def unwatch(self, stallable: Stallable) -> None:
        with self._lock:
            self._stallable.discard(stallable)

    def _wait_pending(self, deadline: float) -> None:
        """Wait for the tracked outcomes until the deadline, and cancel those that take longer."""
        for promise in self._pending_promises.copy():
            if not promise.wait(max(0.0, deadline - time.monotonic())):
                # Cut the connections first: the caller must learn that the outcome is unknown, and not
                # that the call was cancelled.
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
