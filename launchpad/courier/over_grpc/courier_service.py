"""What a server offers to courier clients that come by gRPC (stub.py).

    Hello    who is there? The answer is a welcome (protocol/greeting.py), as on a socket.
    Stay     never answered: it ends when the connection or the server does, and so tells the client.
    Call     one frame CALL in, one frame RESULT, ERROR or NOT_RUN out (frames.py).

A call names the incarnation of the server that it was greeted by. Another one refuses it before its
body is read. So whatever gRPC sends again on its own, and whatever waited in it for a server to come
back, does not reach a server that the client knows nothing of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from launchpad.courier.errors import ProtocolError
from launchpad.courier.over_grpc import frames, package
from launchpad.courier.over_grpc.admission import Shown
from launchpad.courier.over_grpc.handlers import Send, fail, later, refuse
from launchpad.courier.protocol import compression, greeting, notes, wire
from launchpad.courier.servers.later import Later
from launchpad.courier.servers.methods import (
    LATER,
    OURS,
    Reply,
    encode_outcome,
    fit,
    without_stream,
)
from launchpad.courier.servers.serving import Serving
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

_FAR = 1e9  # gRPC's way to say that a call has no deadline is one in some centuries
_WRONG_TOKEN = "{} takes calls from those only who show its token"


class CourierService:
    """Serves frames. Finds a handler for each call, on gRPC's thread; handlers run on the pool."""

    def __init__(self, house: House, token: bytes) -> None:
        self._house = house
        self._token = token
        self._max_bytes = package.limit(house.max_bytes)
        self._staying: set[Send] = set()

    def find(self, path: str, metadata: Any) -> grpc.RpcMethodHandler | None:
        shown = Shown(metadata)
        if not shown.has_token(self._token):
            return refuse(grpc.StatusCode.UNAUTHENTICATED, _WRONG_TOKEN.format(self._house.name))
        if path == package.HELLO:
            return grpc.unary_unary_rpc_method_handler(self._hello)
        if path == package.STAY:
            return later(self._stay)
        if path != package.CALL:
            return None
        if shown.incarnation != self._house.incarnation:
            what = "this is another server than the one that you were greeted by"
            return refuse(grpc.StatusCode.FAILED_PRECONDITION, what, courier_not_run="incarnation")
        return later(partial(self._call, shown))

    def end_stays(self) -> None:
        """Tells all clients that this server takes no more calls."""
        for send in tuple(self._staying):
            send(None)

    def _hello(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        house = self._house
        if house.is_closing:
            fail(context, grpc.StatusCode.UNAVAILABLE, f"{house.name} is stopping")
            return b""
        return greeting.encode_welcome(
            greeting.WELCOME, house.incarnation, house.name, self._max_bytes
        )

    def _stay(self, _: bytes, context: grpc.ServicerContext, send: Send) -> None:
        self._staying.add(send)
        is_there = context.add_callback(lambda: self._staying.discard(send))
        if not is_there or self._house.is_closing:
            self._staying.discard(send)
            send(None)

    def _call(
        self, shown: Shown, message: bytes, context: grpc.ServicerContext, send: Send
    ) -> None:
        try:
            frame = frames.open(message, self._max_bytes)
            found = notes.decode(frame[6])
        except ProtocolError as error:
            fail(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            send(None)
            return
        counts = self._house.counts.of(shown.peer)[frame[2]]
        call = _Call(send, counts, shown.takes_bytes, notes.COMPRESSED in found)
        call.n_in = wire.size(frame[3], frame[4])
        reply = self._answer(frame, found, deadline_of(context))
        if reply[0] == LATER:
            answer_later(self._house, context, reply[1], call.finish)
        else:
            call.finish(reply)

    def _answer(self, frame: wire.Fields, found: dict[int, bytes], deadline: float | None) -> Reply:
        _, _, method, body, buffers, _, _ = frame
        if self._house.is_stopping and not method.startswith(OURS):
            return wire.NOT_RUN, wire.STOPPING, []
        if deadline is not None and deadline < time.monotonic():
            return wire.NOT_RUN, wire.LATE, []
        if (note := found.get(notes.COMPRESSED)) is not None:
            body, buffers = compression.unpack(note, body, buffers, self._max_bytes)
        on_behalf_of = Serving(deadline, found.get(notes.TRACE, b""))
        return carried(self._house.methods.answer_for(on_behalf_of, method, body, buffers))


class _Call:
    """One call that has begun: how its reply is sent and counted."""

    def __init__(
        self, send: Send, counts: MethodCounts, takes_bytes: int, compresses: bool
    ) -> None:
        self._send = send
        self._counts = counts
        self._takes_bytes = takes_bytes
        self._compresses = compresses
        self._began = time.monotonic()
        self.n_in = 0
        counts.started += 1

    def finish(self, reply: Reply) -> None:
        kind, body, views = fit(without_stream(reply), self._takes_bytes)
        if kind != wire.RESULT:
            self._counts.errors += 1
        message = frames.seal(kind, b"", body, views, compress=self._compresses)
        self._counts.finish(time.monotonic() - self._began, self.n_in, wire.size(body, views))
        self._send(message)
        self._send(None)


def carried(reply: Reply) -> Reply:
    """The reply, or the error that it is of a kind which needs more than one message."""
    if reply[0] in (wire.RESULT, wire.ERROR, wire.NOT_RUN, LATER):
        return reply
    error = TypeError(
        "the method returned a stream, which does not travel by gRPC. Return a list, or call it at "
        "another address of its server."
    )
    return wire.ERROR, codec.encode_error(error), []


def answer_later(
    house: House,
    context: grpc.ServicerContext,
    outcome: Later,
    finish: Callable[[Reply], None],
) -> None:
    """Calls `finish(reply)` on the pool when the outcome is there. Who goes away cancels it."""
    house.owe(outcome, lambda: finish(encode_outcome(outcome)))
    if not context.add_callback(outcome.cancel):
        outcome.cancel()


def deadline_of(context: grpc.ServicerContext) -> float | None:
    """When the caller gives up, by `time.monotonic()`."""
    left = context.time_remaining()
    return None if left is None or left > _FAR else time.monotonic() + left
