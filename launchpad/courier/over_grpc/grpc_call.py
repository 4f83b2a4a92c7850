"""One call of a client, until its outcome is known."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import grpc

from launchpad.courier.clients.future import CallFuture
from launchpad.courier.clients.options import Options
from launchpad.courier.clients.peer import Peer, next_pause
from launchpad.courier.over_grpc import frames, package
from launchpad.courier.watching.counts import MethodCounts

_Code = grpc.StatusCode


class GrpcCall:
    """A future, and what it takes to make the call for it: again, where nothing has run."""

    def __init__(
        self,
        peer: Peer,
        method: bytes,
        frame: bytes,
        options: Options,
        deadline: float | None,
        n_bytes: int,
    ) -> None:
        self.peer = peer
        self.method = method
        self.frame = frame
        self.options = options
        self.deadline = deadline
        self.future = CallFuture()
        self.rpc: Any = None  # on its way, if it is
        self._n_bytes = n_bytes
        self._n_in = 0
        self._pause_s = 0.0
        self._not_before = 0.0  # that is when it may be sent again

    def count(self, counts: MethodCounts) -> None:
        """Counts it in, now, and out when its outcome is known."""
        began, n_out = time.monotonic(), self._n_bytes
        counts.started += 1

        def finish(future: Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None:
                counts.errors += 1
            counts.finish(time.monotonic() - began, self._n_in, n_out)

        self.future.add_done_callback(finish)

    def check_wait(self) -> None:
        """Ends it if there is no point in waiting for the server any longer."""
        try:
            self._time_left()
            self.peer.check_wait(self.method, self.options)
        except Exception as error:
            self.future.fail(error)

    def check_before_sending(self) -> float | None:
        """Seconds that are left for it. Raises if there are none, or the server would not take it."""
        self.peer.check_size(self.method, self._n_bytes)
        return self._time_left()

    def postpone(self) -> None:
        """The server takes no calls, and may go on not taking any for a while."""
        self._pause_s = next_pause(self._pause_s)
        self._not_before = time.monotonic() + self._pause_s

    def is_due(self) -> bool:
        """It need not be held back; one that was, may have to end instead."""
        if self._not_before:
            self.check_wait()
        return self._not_before <= time.monotonic()

    def _time_left(self) -> float | None:
        return self.peer.time_left(self.method, self.options, self.deadline)

    def take_answer(self, rpc: Any) -> bool:
        """Settles the future by how the RPC has ended; False if the call may be made again.

        Raises NotRun when the server says that it has not run.
        """
        code = rpc.code()
        if code is _Code.OK:
            message = rpc.result()
            self._n_in = len(message)
            self.future.settle(lambda: self._open(message))
            return True
        if says_not_run(rpc):
            return False
        if code is _Code.UNAUTHENTICATED:
            self.future.fail(refused(self.peer))
            return True
        is_late = self.deadline is not None and code is _Code.DEADLINE_EXCEEDED
        if not is_late and self.peer.may_repeat(self.method, self.options):
            return False
        self.future.fail(self._failure(code, is_late, rpc.details()))
        return True

    def _open(self, message: bytes) -> Any:
        # The server keeps to what we take (fit); what it packed may be larger unpacked.
        reply = frames.open(message, package.MAX_BYTES)
        return self.peer.open_reply(self.method, self.options, reply)

    def _failure(self, code: Any, is_late: bool, details: str) -> Exception:
        if is_late:
            return self.peer.late(self.method, self.options)
        error = self.peer.lost(self.method)
        error.add_note(f"(gRPC says {code.name}: {details})")
        return error


def says_not_run(rpc: Any) -> bool:
    """The server itself, not gRPC or a proxy on the way, says that nothing has run."""
    return any(name == package.NOT_RUN for name, _ in rpc.trailing_metadata() or ())


def refused(peer: Peer) -> Exception:
    """What a wrong token leads to."""
    from launchpad.courier.protocol import greeting

    try:
        peer.check_welcome(greeting.Welcome(greeting.VERSION, greeting.BAD_TOKEN, b"", peer.server))
    except Exception as error:
        return error
    raise AssertionError("a bad token is always refused")
