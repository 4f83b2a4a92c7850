"""Spans of calls, which follow OpenTelemetry's conventions for RPC.

    caller                                   server
    ───────────────────────────────          ─────────────────────────────────
    the span that is current
     └─ CLIENT learner-0/step ──── TRACE ───▶ └─ SERVER learner-0/step      current while it runs
                                               └─ CLIENT replay-0/sample    a call that it makes

This module imports OpenTelemetry. Therefore courier doesn't import it until a program calls `trace`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from launchpad.courier.client.channel import Channel
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.client.stream import Stream
from launchpad.courier.codec import pickling
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.server.dispatcher import Dispatcher
from launchpad.courier.server.replies import PROMISE, Reply
from launchpad.courier.transport import network_address

_propagator = TraceContextTextMapPropagator()
_FIELDS = ("traceparent", "tracestate")


class Spans:
    """The maker of this process's spans. Thread-safe.

    Args:
        tracer_provider: None uses the global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("launchpad.courier", tracer_provider=tracer_provider)
        # Spans of streams that were never closed. The garbage collector may find such a stream in a thread
        # that holds a lock of OpenTelemetry's. Ending the span there could deadlock, so `end_dropped` ends
        # it later.
        self._dropped: deque[tuple[Span, int]] = deque()

    def call(
        self, channel: Channel, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do what `channel.call` does, in a span."""
        with self._start_client(channel, method) as (call, traced):
            result = traced.call(method, *args, **kwargs)
        call.end_with_result(result)
        return result

    def submit(
        self, channel: Channel, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """Do what `channel.submit` does, in a span that ends with the future, or with its stream."""
        with self._start_client(channel, method) as (call, traced):
            future = traced.submit(method, *args, **kwargs)
        future.add_done_callback(call.end_with_future)
        return future

    def answer(
        self,
        methods: Dispatcher,
        trace: bytes,
        method: bytes,
        body: framing.Chunk,
        buffers: Sequence[framing.Chunk],
    ) -> Reply:
        """Do what `methods.answer` does, in a span that is current while the method runs."""
        parent = _context_of(trace)
        name = method.decode(errors="replace")
        span = self._start(methods.server, methods.address, name, SpanKind.SERVER, parent)
        token = context.attach(set_span_in_context(span, parent))
        try:
            reply = methods.answer(method, body, buffers)
        finally:
            context.detach(token)
        if reply[0] == PROMISE:
            reply[1].then(partial(_end_with_promise, span))
        elif reply[0] == framing.STREAM:
            reply[1].on_close = partial(_end_with_error, span)
        else:
            _end_with_error(span, reply[1] if reply[0] == framing.ERROR else b"")
        return reply

    def end_dropped(self) -> None:
        """End the spans of streams that were dropped."""
        with contextlib.suppress(IndexError):
            while True:
                span, at = self._dropped.popleft()
                span.end(at)

    @contextlib.contextmanager
    def _start_client(
        self, channel: Channel, method: bytes
    ) -> Iterator[tuple[_ClientSpan, Channel]]:
        """Yield a new span, and a channel that sends it. An exception in the block ends the span."""
        self.end_dropped()
        peer = channel.peer
        name = method.decode()
        parent = context.get_current()
        span = self._start(peer.server, peer.locate(), name, SpanKind.CLIENT, parent)
        call = _ClientSpan(span, peer, name, self._dropped, bool(peer.server))
        try:
            yield call, channel.with_trace(_trace_of(span))
        except BaseException as error:
            call.end(error)
            raise

    def _start(
        self, server: str, address: str, method: str, kind: SpanKind, parent: Context
    ) -> Span:
        service = server or address or "unknown"
        about: dict[str, str | int] = {
            "rpc.system": "courier",
            "rpc.service": service,
            "rpc.method": method,
            **_describe_address(address),
        }
        return self._tracer.start_span(f"{service}/{method}", parent, kind, about)


@dataclass(slots=True)
class _ClientSpan:
    """The span of a call that this process makes."""

    span: Span
    peer: ServerInfo
    method: str
    dropped: deque[tuple[Span, int]]
    is_named: bool  # the span's name contains the server's name

    def end(self, error: BaseException | None = None) -> None:
        # The call may have found out the server's name.
        if not self.is_named and self.peer.server:
            self.span.update_name(f"{self.peer.server}/{self.method}")
            self.span.set_attribute("rpc.service", self.peer.server)
        _end(self.span, error)

    def drop(self) -> None:
        """Arrange that the span is ended later, with the present time as its end."""
        self.dropped.append((self.span, time.time_ns()))

    def end_with_future(self, future: Future[Any]) -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self.end(error)
        else:
            self.end_with_result(future.result())

    def end_with_result(self, result: object) -> None:
        """End the span now. If the result is a stream, end the span when the stream ends."""
        if isinstance(result, Stream):
            result.watch(self)
        else:
            self.end()


def _describe_address(address: str) -> dict[str, str | int]:
    """Return the parts of an address by OpenTelemetry's names, or nothing if the address isn't known yet."""
    if not address:
        return {}
    scheme, _, place = address.partition(":")
    transport = network_address.transport_of(address)
    if transport is None:
        return {"network.transport": scheme, "server.address": place}
    endpoint = network_address.parse(address, transport)
    return {
        "network.transport": "tcp",
        "server.address": endpoint.host,
        "server.port": endpoint.port,
    }


def _trace_of(span: Span) -> bytes:
    """Return the span as a message carries it: the fields of W3C's trace context, one per line."""
    values: dict[str, str] = {}
    _propagator.inject(values, set_span_in_context(span, Context()))
    return "\n".join(values.get(field, "") for field in _FIELDS).encode()


def _context_of(trace: bytes) -> Context:
    """Return a context whose current span is the caller's, or an empty context for malformed bytes."""
    values = trace.decode(errors="replace").split("\n")
    return _propagator.extract(dict(zip(_FIELDS, values, strict=False)), Context())


def _end(span: Span, error: BaseException | None = None) -> None:
    if error is not None:
        span.record_exception(error)
        _mark_failed(span, type(error).__qualname__, repr(error))
    span.end()


def _end_with_promise(span: Span, promise: Promise) -> None:
    try:
        promise.result()
    except BaseException as error:
        _end(span, error)
    else:
        _end(span)


def _end_with_error(span: Span, body: bytes) -> None:
    """End the span. If `body`, the pickle of an exception, isn't empty, mark the span as failed."""
    if body:
        envelope = pickling.open_error(body)
        about = {
            "exception.type": envelope.type_name,
            "exception.message": envelope.text,
            "exception.stacktrace": envelope.traceback,
        }
        span.add_event("exception", about)
        _mark_failed(span, envelope.type_name, envelope.text)
    span.end()


def _mark_failed(span: Span, type_name: str, text: str) -> None:
    span.set_attribute("error.type", type_name)
    span.set_status(Status(StatusCode.ERROR, text))
