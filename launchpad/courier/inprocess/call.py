"""Calls between threads of one process, without a socket.

Arguments and results go through the codec all the same, and buffers are copied: a program must not
work in threads, where everything could be shared, and break in processes. A method always runs on the
server's own threads, so that deadlines, stop and growth mean the same as over a socket, and debuggers,
profilers and a library's thread-local state what they mean anywhere else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launchpad.courier import caller
from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import CallContext
from launchpad.courier.caller import Peer
from launchpad.courier.client.watchdog import SlowCallWatchdog
from launchpad.courier.codec import pickling
from launchpad.courier.interruptions import Lock
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server.core import ServerCore
from launchpad.courier.server.replies import LOST, PROMISE, Reply, encode_outcome, fit
from launchpad.courier.server.thread_pool import LocalCall
from launchpad.courier.telemetry.counters import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.client.server_info import ServerInfo

_POLL_S = 1.0  # a caller that waits that long searches for the reason, and again after as long

_UNKNOWN = Peer("")


class InprocessCall(LocalCall):
    """One call on its way through a server of this process; a job for its threads.

    It is completed exactly once: with the method's outcome, or a NOT_RUN or LOST. Which of them is
    decided by the first of these: the thread that ran it, the server's stop, the caller's deadline.

    Args:
        max_bytes: the largest result that the caller takes.
        call_context: what the calls that the method makes inherit, with the deadline.
        on_reply: called with the reply, in the thread that completes the call.
    """

    call_id = 0

    def __init__(
        self,
        method: bytes,
        body: bytes,
        buffers: Sequence[framing.Chunk],
        max_bytes: int,
        call_context: CallContext | None = None,
        on_reply: Callable[[Reply], object] | None = None,
    ) -> None:
        self.method = method
        self.size = framing.size(body, buffers) if buffers else len(body)  # of the arguments
        self.deadline = call_context.deadline if call_context is not None else None
        self._arguments: tuple[bytes, Sequence[framing.Chunk]] = body, buffers
        self._max_bytes = max_bytes
        self._call_context = call_context
        self._on_reply = on_reply
        self._reply: Reply = (framing.NOT_RUN, b"", [])
        self._promise: Promise | None = None
        self._state_lock = Lock()
        self._is_completed = False
        self.peer = _UNKNOWN  # from when it is queued
        self._has_reply = Lock()  # released when the reply is there
        self._has_reply.acquire()

    def enqueue(self, core: ServerCore, peer: Peer, counts: MethodCounts) -> bool:
        """Queues it for a thread of the server, which counts it; False when the server is stopping."""
        self._core, self._counts, self.peer = core, counts, peer
        self.is_urgent = self.method in core.methods.urgent
        return core.accept_local_call(self)

    def wait(self, peer: ServerInfo) -> Reply:
        """The reply. Past the deadline, and when this is interrupted, the call is given up."""
        watchdog = None
        try:
            while True:
                left_s = _POLL_S if self.deadline is None else self.deadline - time.monotonic()
                if self._has_reply.acquire(timeout=max(0.0, min(left_s, _POLL_S))):
                    break
                if self.deadline is not None and self.deadline <= time.monotonic():
                    self.give_up()
                    break
                watchdog = watchdog or SlowCallWatchdog(peer, self.method)
                watchdog.check()
        except BaseException:
            self.give_up()
            raise
        return self._reply

    def run(self) -> None:
        """Runs the method, on a thread of the server."""
        core = self._core
        self.thread_id = threading.get_ident()
        self._began = time.monotonic()
        if self.deadline is not None and self.deadline < self._began:
            self.give_up()
        with self._state_lock:
            self.has_begun = not self._is_completed
        if not self.has_begun:
            core.untrack(self)
            return
        self._counts.started += 1
        (body, buffers), self._arguments = self._arguments, (b"", ())
        token = caller.current.set(self)
        try:
            if self._call_context is None:
                reply = core.methods.answer(self.method, body, buffers)
            else:
                reply = core.methods.answer_for(self._call_context, self.method, body, buffers)
        finally:
            caller.current.reset(token)
        del body, buffers  # only the method knows how long they are needed
        if reply[0] != PROMISE:
            self._answer_with(reply)
            return
        promise: Promise = reply[1]
        with self._state_lock:
            self._promise = promise
            is_completed = self._is_completed
        if is_completed:
            promise.cancel()
        core.send_when_done(promise, lambda: self._answer_with(encode_outcome(promise)))

    def is_gone(self, call_id: int = 0) -> bool:
        """Whether its caller does not wait any longer."""
        return self._is_completed

    def give_up(self) -> None:
        """The caller does not wait any longer: if the call has not begun, it will not."""
        self._complete(framing.NOT_RUN, framing.LATE, [])

    def abandon(self) -> None:
        self._complete(framing.NOT_RUN, framing.STOPPING, [])

    def _complete(self, kind: int, body: bytes, buffers: list[memoryview]) -> bool:
        """Gives the call its one outcome; False, and nothing happens, when it has one already."""
        with self._state_lock:
            if self._is_completed:
                return False
            self._is_completed = True
            if kind == framing.NOT_RUN and self.has_begun:
                kind = LOST
            self._reply = kind, body, buffers
            promise = self._promise if kind == LOST else None
        if promise is not None:
            promise.cancel()  # no caller would receive its outcome
        self._has_reply.release()
        # What the method leaves may keep this call, as that of its caller, but must not keep its future.
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            on_reply(self._reply)
        return True

    def _answer_with(self, reply: Reply) -> None:
        """Completes the call as a socket would: within the caller's limit, with buffers of its own."""
        core = self._core
        kind, body, buffers = reply
        if kind == framing.STREAM:  # fetched over a connection (inprocess_addresses.connect)
            body = core.methods.unclaimed_streams.put(body, self, self._counts)
        if buffers or len(body) > min(framing.SMALL, self._max_bytes):
            try:
                kind, body, views = fit((kind, body, buffers), self._max_bytes)
                buffers = copies(views)
            except MemoryError as error:
                kind, body, buffers = framing.ERROR, pickling.encode_error(error), []
        if kind == framing.ERROR:
            self._counts.errors += 1
        n_out = framing.size(body, buffers) if buffers else len(body)
        self._counts.finish(time.monotonic() - self._began, self.size, n_out)
        if not self._complete(kind, body, buffers) and kind == framing.STREAM:
            core.methods.unclaimed_streams.drop(self)  # its caller has given it up
        core.untrack(self)
