"""A server's methods for callers in any language, as `launchpad.NAME/method`, with JSON values.

    grpcurl -H "authorization: Bearer $TOKEN" -d '[2, 3]' host:port launchpad.learner/add

Arguments and results are `google.protobuf.Value`, which is gRPC's form of JSON. A method runs as it does for
any other caller: on the same threads and with the caller's deadline. Its calls are counted, too.
"""

from __future__ import annotations

import math
import pickle
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.struct_pb2 import ListValue, NullValue, Struct, Value

from launchpad.courier.call_stack import CallContext
from launchpad.courier.codec import pickling
from launchpad.courier.grpc.common import (
    CallerMetadata,
    GrpcCaller,
    Send,
    fail,
    refuse,
    unary_handler,
)
from launchpad.courier.grpc.courier_service import deadline_of, finish_when_done, without_stream
from launchpad.courier.protocol import framing
from launchpad.courier.server.replies import Reply
from launchpad.courier.telemetry.counters import MethodCounts

if TYPE_CHECKING:
    from launchpad.courier.server.core import ServerCore

_Code = grpc.StatusCode
_MAX_TEXT = 2000  # gRPC's headers hold a few kilobytes, and fail beyond that
_MAX_TRACEBACK = 3000
_EXACT = 1 << 53  # floats beyond this number skip some whole numbers
_MAX_DEPTH = 100  # protobuf itself reads nothing deeper


class JsonService:
    """A service of JSON values. It finds handlers on gRPC's thread. The handlers run on the pool."""

    def __init__(self, core: ServerCore, token: bytes) -> None:
        self._core = core
        self._token = token
        name = re.sub(r"[^A-Za-z0-9_]", "_", core.name)
        #: The name as a gRPC service: `launchpad.learner_0` for `learner/0`.
        self.name = f"launchpad.{name}" if name[:1].isalpha() else f"launchpad._{name}"

    def find(self, path: str, metadata: Any) -> grpc.RpcMethodHandler | None:
        caller_metadata = CallerMetadata(metadata)
        if not caller_metadata.has_token(self._token):
            text = (
                f"{self._core.name} takes calls only with its token: "
                "send the header `authorization: Bearer <token in hex>`"
            )
            return refuse(_Code.UNAUTHENTICATED, text)
        method = path.rpartition("/")[2]
        if method.startswith("_") or not self._core.methods.has(method.encode()):
            names = ", ".join(self._core.methods.list_names())
            text = f"{self._core.name} has no method {method!r}. It serves: {names or 'nothing'}"
            return refuse(_Code.UNIMPLEMENTED, text[:_MAX_TEXT])
        answer = partial(self._call, caller_metadata, method.encode())
        return unary_handler(answer, Value.FromString, lambda value: value.SerializeToString())

    def _call(
        self,
        caller_metadata: CallerMetadata,
        method: bytes,
        request: Value,
        context: grpc.ServicerContext,
        send: Send,
    ) -> None:
        core = self._core
        deadline = deadline_of(context)
        # `ipv4:10.0.0.5:1234` without the port, which differs for each connection.
        name = caller_metadata.peer.name or f"grpc {context.peer().rpartition(':')[0]}"
        counts = core.counts.of(name)[method]
        call = _JsonCall(context, send, counts, request.ByteSize())
        if core.is_stopping:
            call.end(_Code.UNAVAILABLE, f"{core.name} is stopping, and has not run this call")
            return
        if deadline is not None and deadline < time.monotonic():
            call.end(_Code.DEADLINE_EXCEEDED, "the deadline passed before the call began")
            return
        body, buffers = pickling.encode(to_arguments(request))
        call_context = CallContext(deadline, caller_metadata.trace)
        with GrpcCaller(caller_metadata.peer._replace(name=name), context):
            reply = core.methods.answer_for(call_context, method, body, buffers)
        finish_when_done(core, context, reply, call.finish)


class _JsonCall:
    """One call that has begun. It sends and counts the reply."""

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
        if kind != framing.RESULT:
            envelope = pickling.open_error(body)
            header_data = envelope.traceback.encode()
            trailing = {"traceback_bin": header_data} if len(header_data) <= _MAX_TRACEBACK else {}
            self.end(_Code.UNKNOWN, f"{envelope.type_name}: {envelope.text}", **trailing)
            return
        try:
            # This process made the pickle. Loading it gives the same copy that a courier client would get.
            value = to_value(pickle.loads(body, buffers=views))
        except Exception as error:
            self.end(_Code.INTERNAL, f"the method has run, but {error}")
            return
        self._counts.finish(time.monotonic() - self._began, self._n_in, value.ByteSize())
        self._send(value)
        self._send(None)

    def end(self, code: grpc.StatusCode, text: str, **trailing: Any) -> None:
        self._counts.errors += 1
        self._counts.finish(time.monotonic() - self._began, self._n_in, 0)
        fail(self._context, code, text[:_MAX_TEXT], **trailing)
        self._send(None)


class NotJson(ValueError):
    """The error for a value that JSON cannot express. It names the value and its place in the result."""


def to_arguments(value: Value) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments in a value: a list has positional arguments, an object has keyword arguments.

    Any other value is the only argument. Without a value there are no arguments.
    """
    arguments = to_python(value)
    if isinstance(arguments, list):
        return arguments, {}
    if isinstance(arguments, dict):
        return [], arguments
    if value.WhichOneof("kind") is None:
        return [], {}
    return [arguments], {}


def to_python(value: Value) -> Any:
    """Return a value as Python objects. Whole numbers are ints, because JSON doesn't tell 3 from 3.0."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {name: to_python(field) for name, field in value.struct_value.fields.items()}
    if kind == "list_value":
        return [to_python(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number
    return None if kind in (None, "null_value") else getattr(value, kind)


def to_value(thing: Any, where: str = "the result", depth: int = 0) -> Value:
    """Return a Python object as a JSON value, with arrays as lists. Raise NotJson if that is impossible."""
    if depth > _MAX_DEPTH:
        raise NotJson(f"{where[:100]}… is nested more than {_MAX_DEPTH} deep")
    if thing is None:
        return Value(null_value=NullValue.NULL_VALUE)
    if isinstance(thing, bool):
        return Value(bool_value=thing)
    if isinstance(thing, str):
        return Value(string_value=thing)
    if isinstance(thing, int) and abs(thing) > _EXACT:
        raise NotJson(f"{where} is {thing}, which a number of JSON cannot be exactly; return text")
    if isinstance(thing, int | float):
        if not math.isfinite(thing):
            raise NotJson(f"{where} is {thing}, which is no number in JSON; return None or text")
        return Value(number_value=thing)
    if isinstance(thing, dict):
        fields = {}
        for name, field in thing.items():
            if not isinstance(name, str):
                raise NotJson(f"{where} has the key {name!r}; in JSON keys are text")
            fields[name] = to_value(field, f"{where}[{name!r}]", depth + 1)
        return Value(struct_value=Struct(fields=fields))
    if isinstance(thing, list | tuple):
        values = [to_value(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(thing)]
        return Value(list_value=ListValue(values=values))
    if callable(getattr(thing, "tolist", None)):  # arrays and their scalars, of any library
        return to_value(thing.tolist(), where, depth + 1)
    raise NotJson(
        f"{where} is a {type(thing).__name__}, which JSON cannot express. Return numbers, text, "
        "lists, dicts, arrays or None; or call it with a courier client."
    )
