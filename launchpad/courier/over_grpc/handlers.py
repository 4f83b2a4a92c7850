"""How calls are answered, beyond what gRPC itself has functions for.

gRPC reads the message of a unary call before it calls the handler. So who shall not be heard gets
a handler of streams, which reads nothing (`refuse`).

A unary handler of gRPC answers when it returns. One that may answer after that (`later`) is a
handler of an answer of many messages, of which there is one: on the wire that is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

Send = Callable[[Any], None]  # the one message, and then None: the end


def refuse(code: grpc.StatusCode, text: str, **trailing: str) -> grpc.RpcMethodHandler:
    """A handler that answers with `code`; `trailing` goes with it, underscores being hyphens."""

    def answer(_: object, context: grpc.ServicerContext) -> Iterator[bytes]:
        fail(context, code, text, **trailing)
        return iter(())

    return grpc.stream_stream_rpc_method_handler(answer)


def fail(context: grpc.ServicerContext, code: grpc.StatusCode, text: str, **trailing: Any) -> None:
    """Sets how the call ends; the caller of this has still to end it."""
    if trailing:
        context.set_trailing_metadata(
            tuple((name.replace("_", "-"), value) for name, value in trailing.items())
        )
    context.set_code(code)
    context.set_details(text)


def later(
    answer: Callable[[Any, grpc.ServicerContext, Send], None],
    parse: Callable[[bytes], Any] | None = None,
    write: Callable[[Any], bytes] | None = None,
) -> grpc.RpcMethodHandler:
    """A handler that calls `answer(request, context, send)`, and keeps no thread when that returns."""

    def run(request: Any, context: grpc.ServicerContext, send: Send) -> None:
        answer(request, context, send)

    run.experimental_non_blocking = True  # type: ignore[attr-defined]
    return grpc.unary_stream_rpc_method_handler(run, parse, write)
