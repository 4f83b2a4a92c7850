"""One call of a client, until its outcome is known."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import grpc

from launchpad.courier.client import call_errors
from launchpad.courier.client.call import check_wait, decode_reply, may_repeat, time_left
from launchpad.courier.client.channel import Channel
from launchpad.courier.client.future import CallFuture
from launchpad.courier.grpc import common

_Code = grpc.StatusCode


class GrpcCall:
    """A call of a gRPC client: its future, and everything that is needed to send it and resend it."""

    def __init__(self, channel: Channel, method: bytes, frame: bytes, n_bytes: int) -> None:
        began = time.monotonic()
        counts = channel.counts[method]
        counts.started += 1
        self.peer = channel.peer
        self.method = method
        self.frame = frame
        self.options = channel.options
        self.deadline = channel.options.find_deadline(began)
        self.future = CallFuture()
        self.future.on_cancel = self.cancel
        self.rpc: Any = None  # the RPC in flight, if any
        self.n_bytes = n_bytes
        self.pause_s = 0.0
        self.not_before = 0.0  # when the call may be sent again, if the server took no calls
        self._was_refused = False
        self._n_in = 0

        def finish(future: Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None:
                counts.errors += 1
            counts.finish(time.monotonic() - began, self._n_in, n_bytes)

        self.future.add_done_callback(finish)

    def cancel(self) -> None:
        rpc = self.rpc
        if rpc is not None:
            rpc.cancel()

    def fail(self, error: Exception) -> None:
        self.future.fail(error)
        self.cancel()

    def check_wait(self) -> None:
        """Fail the call if there is no point in waiting for the server any longer."""
        try:
            time_left(self.peer, self.method, self.options, self.deadline)
            check_wait(self.peer, self.method, self.options)
        except Exception as error:
            self.future.fail(error)

    def take_answer(self, rpc: Any) -> bool:
        """Complete the future, or return False if the call may be made again.

        Raises NotRun if the server answers that the call has not run.
        """
        code = rpc.code()
        if code is _Code.OK:
            message = rpc.result()
            self._n_in = len(message)
            # The server keeps to the limit of the client (`fit`), but a compressed result may unpack to more.
            self.future.complete(
                lambda: decode_reply(
                    self.peer,
                    self.method,
                    self.options,
                    common.decode_frame(message, common.MAX_BYTES),
                )
            )
            return True
        if any(name == common.NOT_RUN for name, _ in rpc.trailing_metadata() or ()):
            return False  # the server itself says so, not gRPC or a proxy on the way
        if code is _Code.UNAUTHENTICATED:
            # Perhaps a new server is at this address, with another token.
            if not self._was_refused:
                self._was_refused = True
                return False
            self.future.fail(call_errors.wrong_token(self.peer))
            return True
        if self.deadline is not None and code is _Code.DEADLINE_EXCEEDED:
            self.future.fail(call_errors.late(self.peer, self.method, self.options))
            return True
        if may_repeat(self.peer, self.method, self.options):
            return False
        error = call_errors.lost(self.peer, self.method)
        error.add_note(f"(gRPC says {code.name}: {rpc.details()})")
        self.future.fail(error)
        return True
