"""The gRPC service for courier clients (channel.py).

    Hello    the handshake. The answer is a server hello (protocol/handshake.py), as on a socket.
    Stay     never answered: it ends with the connection or the server, which the client notices.
    Call     one frame CALL in, one frame RESULT, ERROR or NOT_RUN out (common.py).

A call names the incarnation of the server that answered its client's Hello. Any other server refuses the call
before reading the body. gRPC may repeat a call by itself, or let it wait until a server is back. Even then
the call never runs at a server that the client has had no handshake with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from launchpad.courier.call_stack import CallContext
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.grpc import common
from launchpad.courier.grpc.common import (
    CallerMetadata,
    GrpcCaller,
    Send,
    fail,
    refuse,
    unary_handler,
)
from launchpad.courier.protocol import framing, handshake
from launchpad.courier.server.replies import PROMISE, Reply, encode_outcome, fit

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore

_NO_DEADLINE = 1e9  # seconds; gRPC reports a call without a deadline as one that ends in centuries
_WRONG_TOKEN = "{} takes calls only with its token"


class CourierService:
    """A service that answers frames. It finds handlers on gRPC's thread. The handlers run on the pool."""

    def __init__(self, core: ServerCore, token: bytes) -> None:
        self._core = core
        self._token = token
        self._max_bytes = min(core.max_bytes, common.MAX_BYTES)
        self.open_calls: set[Send] = set()  # one for each Stay; they end when the server stops

    def find(self, path: str, metadata: Any) -> grpc.RpcMethodHandler | None:
        caller_metadata = CallerMetadata(metadata)
        if not caller_metadata.has_token(self._token):
            return refuse(grpc.StatusCode.UNAUTHENTICATED, _WRONG_TOKEN.format(self._core.name))
        if path == common.HELLO:
            return grpc.unary_unary_rpc_method_handler(self._hello)
        if path == common.KEEP_OPEN:
            return unary_handler(self._open_call)
        if path != common.CALL:
            return None
        if caller_metadata.incarnation != self._core.incarnation:
            text = "this is another server than the one of the handshake"
            return refuse(grpc.StatusCode.FAILED_PRECONDITION, text, courier_not_run="incarnation")
        return unary_handler(partial(self._call, caller_metadata))

    def _hello(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        core = self._core
        if core.is_closing:
            fail(context, grpc.StatusCode.UNAVAILABLE, f"{core.name} is stopping")
            return b""
        return handshake.encode_server_hello(
            handshake.ACCEPTED, core.incarnation, core.name, self._max_bytes
        )

    def _open_call(self, _: bytes, context: grpc.ServicerContext, send: Send) -> None:
        self.open_calls.add(send)
        is_there = context.add_callback(lambda: self.open_calls.discard(send))
        if not is_there or self._core.is_closing:
            self.open_calls.discard(send)
            send(None)

    def _call(
        self,
        caller_metadata: CallerMetadata,
        message: bytes,
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        try:
            frame = common.decode_frame(message, self._max_bytes)
            headers = framing.decode_headers(frame[6])
        except ProtocolError as error:
            fail(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            send(None)
            return
        counts = self._core.counts.of(caller_metadata.peer.name)[frame[2]]
        counts.started += 1
        began = time.monotonic()
        n_in = framing.size(frame[3], frame[4])

        def finish(reply: Reply) -> None:
            kind, body, views = fit(without_stream(reply), caller_metadata.takes_bytes)
            counts.errors += kind != framing.RESULT
            compress = compression.is_packed(frame[6])
            answer = common.encode_frame(kind, b"", body, views, compress=compress)
            counts.finish(time.monotonic() - began, n_in, framing.size(body, views))
            send(answer)
            send(None)

        with GrpcCaller(caller_metadata.peer, context):
            reply = self._answer(frame, headers, deadline_of(context))
        finish_when_done(self._core, context, reply, finish)

    def _answer(
        self, frame: framing.Fields, headers: dict[int, bytes], deadline: float | None
    ) -> Reply:
        _, _, method, body, buffers, _, _ = frame
        if self._core.is_stopping and not method.startswith(framing.BUILTIN_PREFIX):
            return framing.NOT_RUN, framing.STOPPING, []
        if deadline is not None and deadline < time.monotonic():
            return framing.NOT_RUN, framing.LATE, []
        body, buffers = compression.unpack_if_packed(headers, body, buffers, self._max_bytes)
        call_context = CallContext(
            deadline, headers.get(framing.TRACE, b""), headers.get(framing.RECORDED, b"")
        )
        return self._core.methods.answer_for(call_context, method, body, buffers)


def without_stream(reply: Reply) -> Reply:
    """Return the reply. If it is a stream, which would need several messages, return an error."""
    if reply[0] != framing.STREAM:
        return reply
    reply[1].drop()
    error = TypeError(
        "the method returned an iterator, and gRPC carries no streams of ours: return a list, or serve at "
        "a unix: or tcp: address"
    )
    return framing.ERROR, pickling.encode_error(error), []


def finish_when_done(
    core: ServerCore, context: grpc.ServicerContext, reply: Reply, finish: Callable[[Reply], None]
) -> None:
    """Call `finish(reply)`.

    If the reply is a promise, the pool calls `finish` when the promise is done. If the caller leaves before,
    the promise is cancelled.
    """
    if reply[0] != PROMISE:
        finish(reply)
        return
    outcome = reply[1]
    core.send_when_done(outcome, lambda: finish(encode_outcome(outcome)))
    if not context.add_callback(outcome.cancel):
        outcome.cancel()


def deadline_of(context: grpc.ServicerContext) -> float | None:
    """Return when the caller gives up, by `time.monotonic()`; None for never."""
    remaining_s: float | None = context.time_remaining()
    if remaining_s is None or remaining_s > _NO_DEADLINE:
        return None
    return time.monotonic() + remaining_s
