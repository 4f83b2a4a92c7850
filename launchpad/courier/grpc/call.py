"""One call of a client, until its outcome is known."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import grpc

from launchpad.courier.client.future import CallFuture
from launchpad.courier.client.remote_server import Options, RemoteServer
from launchpad.courier.client.retry import may_repeat
from launchpad.courier.grpc import common
from launchpad.courier.telemetry.counters import MethodCounts

_Code = grpc.StatusCode


class GrpcCall:
    """A future, and what it takes to make the call for it: again, where nothing has run."""

    def __init__(
        self,
        peer: RemoteServer,
        method: bytes,
        frame: bytes,
        options: Options,
        deadline: float | None,
        n_bytes: int,
        counts: MethodCounts,
    ) -> None:
        self.peer = peer
        self.method = method
        self.frame = frame
        self.options = options
        self.deadline = deadline
        self.future = CallFuture()
        self.rpc: Any = None  # in flight, if it is
        self.n_bytes = n_bytes
        self.pause_s = 0.0
        self.not_before = 0.0  # when it may be sent again, as the server took no calls
        self._was_refused = False
        self._n_in = 0
        began = time.monotonic()
        counts.started += 1

        def finish(future: Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None:
                counts.errors += 1
            counts.finish(time.monotonic() - began, self._n_in, n_bytes)

        self.future.add_done_callback(finish)

    def check_wait(self) -> None:
        """Ends it if there is no point in waiting for the server any longer."""
        try:
            self.peer.time_left(self.method, self.options, self.deadline)
            self.peer.check_wait(self.method, self.options)
        except Exception as error:
            self.future.fail(error)

    def take_answer(self, rpc: Any) -> bool:
        """Settles the future by how the RPC has ended; False if the call may be made again.

        Raises NotRun when the server answers that it has not run.
        """
        code = rpc.code()
        if code is _Code.OK:
            message = rpc.result()
            self._n_in = len(message)
            # The server keeps to the client's limit (fit); what it compressed may be larger than that.
            self.future.complete(
                lambda: self.peer.decode_reply(
                    self.method, self.options, common.decode_frame(message, common.MAX_BYTES)
                )
            )
            return True
        if any(name == common.NOT_RUN for name, _ in rpc.trailing_metadata() or ()):
            return False  # the server itself answers so, not gRPC or a proxy on the way
        if code is _Code.UNAUTHENTICATED:
            if not self._was_refused:  # by the next server at this address, whose token is another
                self._was_refused = True
                return False
            self.future.fail(refused(self.peer))
            return True
        is_late = self.deadline is not None and code is _Code.DEADLINE_EXCEEDED
        if not is_late and may_repeat(
            self.method, self.peer.idempotent, is_idempotent=self.options.idempotent
        ):
            return False
        error: Exception
        if is_late:
            error = self.peer.late(self.method, self.options)
        else:
            error = self.peer.lost(self.method)
            error.add_note(f"(gRPC says {code.name}: {rpc.details()})")
        self.future.fail(error)
        return True


def refused(peer: RemoteServer) -> Exception:
    """The error that a wrong token leads to."""
    from launchpad.courier.protocol import handshake

    try:
        peer.check_server_hello(
            handshake.ServerHello(handshake.VERSION, handshake.BAD_TOKEN, b"", peer.server)
        )
    except Exception as error:
        return error
    raise AssertionError("a bad token is always refused")
