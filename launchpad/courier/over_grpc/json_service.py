"""The methods of a server for callers in any language: `launchpad.NAME/method`, with JSON values.

    grpcurl -H "authorization: Bearer $TOKEN" -d '[2, 3]' host:port launchpad.learner/add

Arguments and result are `google.protobuf.Value` (json_values.py). A method runs as for any other
caller: on the same threads, counted, with the caller's deadline.
"""

from __future__ import annotations

import pickle
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.struct_pb2 import Value

from launchpad.courier.over_grpc import json_values
from launchpad.courier.over_grpc.admission import Shown
from launchpad.courier.over_grpc.courier_service import answer_later, carried, deadline_of
from launchpad.courier.over_grpc.handlers import Send, fail, later, refuse
from launchpad.courier.protocol import wire
from launchpad.courier.servers.methods import LATER, Reply, without_stream
from launchpad.courier.servers.serving import Serving
from launchpad.courier.values import codec
from launchpad.courier.watching.counts import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.servers.house import House

_Code = grpc.StatusCode
_MAX_TEXT = 2000  # gRPC's headers hold some kilobytes, and break beyond
_MAX_TRACEBACK = 3000


def service_name(server: str) -> str:
    """What a server is called as a gRPC service: `launchpad.learner_0` for `learner/0`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", server)
    return f"launchpad.{name if name[:1].isalpha() else '_' + name}"


class JsonService:
    """Serves JSON values. Finds a handler for each call, on gRPC's thread; handlers run on the pool."""

    def __init__(self, house: House, token: bytes) -> None:
        self._house = house
        self._token = token
        self.name = service_name(house.name)

    def find(self, path: str, metadata: Any) -> grpc.RpcMethodHandler | None:
        shown = Shown(metadata)
        if not shown.has_token(self._token):
            what = (
                f"{self._house.name} takes calls from those only who show its token: "
                "send the header `authorization: Bearer <token in hex>`"
            )
            return refuse(_Code.UNAUTHENTICATED, what)
        method = path.rpartition("/")[2]
        if method.startswith("_") or not self._house.methods.has(method.encode()):
            names = ", ".join(self._house.methods.list_names())
            what = f"{self._house.name} has no method {method!r}. It serves: {names or 'nothing'}"
            return refuse(_Code.UNIMPLEMENTED, what[:_MAX_TEXT])
        answer = partial(self._call, shown, method.encode())
        return later(answer, Value.FromString, lambda value: value.SerializeToString())

    def _call(
        self,
        shown: Shown,
        method: bytes,
        request: Value,
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        house = self._house
        deadline = deadline_of(context)
        counts = house.counts.of(shown.peer or _host_of(context.peer()))[method]
        call = _Call(context, send, counts, request.ByteSize())
        if house.is_stopping:
            call.end(_Code.UNAVAILABLE, f"{house.name} is stopping, and has not run this call")
            return
        if deadline is not None and deadline < time.monotonic():
            call.end(_Code.DEADLINE_EXCEEDED, "the deadline passed before the call began")
            return
        body, buffers = codec.encode(json_values.to_arguments(request))
        on_behalf_of = Serving(deadline, shown.trace)
        reply = carried(house.methods.answer_for(on_behalf_of, method, body, buffers))
        if reply[0] == LATER:
            answer_later(house, context, reply[1], call.finish)
        else:
            call.finish(reply)


class _Call:
    """One call that has begun: how its reply is sent and counted."""

    def __init__(
        self, context: grpc.ServicerContext, send: Send, counts: MethodCounts, n_in: int
    ) -> None:
        self._context = context
        self._send = send
        self._counts = counts
        self._n_in = n_in
        self._began = time.monotonic()
        counts.started += 1

    def finish(self, reply: Reply) -> None:
        kind, body, views = without_stream(reply)
        if kind != wire.RESULT:
            self._raise(body)
            return
        try:
            # A pickle of our own: the same copy that a caller of courier would get.
            value = json_values.to_value(pickle.loads(body, buffers=views))
        except Exception as error:
            self.end(_Code.INTERNAL, f"the method has run, but {error}")
            return
        self._count(value.ByteSize())
        self._send(value)
        self._send(None)

    def end(self, code: grpc.StatusCode, text: str, **trailing: Any) -> None:
        """Ends it with an error."""
        self._counts.errors += 1
        self._count(0)
        fail(self._context, code, text[:_MAX_TEXT], **trailing)
        self._send(None)

    def _raise(self, body: wire.Chunk) -> None:
        name, text, traceback = codec.describe_error(body)
        trailing = {"traceback_bin": traceback.encode()}
        if len(trailing["traceback_bin"]) > _MAX_TRACEBACK:
            trailing = {}
        self.end(_Code.UNKNOWN, f"{name}: {text}", **trailing)

    def _count(self, n_out: int) -> None:
        self._counts.finish(time.monotonic() - self._began, self._n_in, n_out)


def _host_of(peer: str) -> str:
    """`ipv4:10.0.0.5:1234` without the port, which is another one each time."""
    return f"grpc {peer.rpartition(':')[0]}"
