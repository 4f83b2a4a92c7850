"""Spans of calls. They are off until `trace` exports them by OpenTelemetry, or a recording collects them.

    trace() ──▶ opentelemetry = Spans(…)     channel.call, channel.submit    look at `spans`, once per call
    recording.record() ──▶ recorder          Dispatcher.answer_for           where a frame has headers

While the recorder takes calls, `spans` is the recorder, which passes calls on to OpenTelemetry. Otherwise
`spans` is OpenTelemetry's tracer, or None. While both are off, OpenTelemetry is not imported, and a call only
looks at one more global.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier import extras, fork
from launchpad.courier.caller import Peer, own_peer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import TracerProvider


class CallTracer(Protocol):
    """An object that makes a span of each call that this process makes."""

    def call(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any: ...

    def submit(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Future[Any]: ...


class Tracer(CallTracer, Protocol):
    """A call tracer that also makes spans of calls that are answered here: `opentelemetry.Spans`."""

    def answer(
        self, methods: Any, trace: bytes, method: bytes, body: Any, buffers: Sequence[Any], /
    ) -> tuple[int, Any, list[memoryview]]: ...

    def end_dropped(self) -> None: ...


class SpanRecorder(CallTracer, Protocol):
    """A call tracer that keeps spans for a while: `recording.ProcessRecorder`."""

    def answer(
        self,
        answer: Callable[..., tuple[int, Any, list[memoryview]]],
        call: tuple[str, bytes],
        method: bytes,
        body: Any,
        buffers: Sequence[Any],
        /,
    ) -> tuple[int, Any, list[memoryview]]: ...

    def end_wait(self, wait: Wait, /) -> None: ...


spans: CallTracer | None = None
opentelemetry: Tracer | None = None
recorder: SpanRecorder | None = None
_NOTHING: AbstractContextManager[None] = nullcontext()
open_waits: dict[int, Wait] = {}
"""The waits in progress, so that a recording also shows those that began before it."""


class Wait:
    """A block in which the calling thread waits for others. Recordings show it. It costs about 1 µs.

    Example:
        with tracing.Wait("barrier"):
            marks.wait_for(is_over)
    """

    __slots__ = ("began_ns", "name", "peer", "thread")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.peer: Peer = own_peer()
        self.thread = threading.get_native_id(), threading.current_thread().name
        self.began_ns = time.monotonic_ns()
        open_waits[id(self)] = self

    def __exit__(self, *_: object) -> None:
        open_waits.pop(id(self), None)
        if recorder is not None:
            recorder.end_wait(self)


def quick_wait(name: str) -> AbstractContextManager[None]:
    """Return a `Wait` for a wait that may take only microseconds.

    The wait is noted only if a recording is on when the wait begins.
    """
    return _NOTHING if recorder is None else Wait(name)


def trace(tracer_provider: TracerProvider | None = None) -> None:
    """Start exporting the calls of this process as OpenTelemetry spans. Needs `launchpad-graph[otel]`.

    Example:
        provider = TracerProvider(resource=Resource({"service.name": lp.current().name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        courier.trace(provider)

    A call that this process makes is a CLIENT span. A call that it serves is a SERVER span if the caller
    traces too. The two are linked: the caller's span travels with the call (W3C Trace Context). Calls that a
    method makes are children of its span, if they are made in the same thread or coroutine. Errors are
    recorded. The span of a future ends when its outcome arrives.

    Call it once in each process: in a node's constructor, or where its module is imported.

    Args:
        tracer_provider: The provider to use; OpenTelemetry's global one if None.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    global spans, opentelemetry
    try:
        module = importlib.import_module("launchpad.courier.opentelemetry")
    except ImportError as error:
        raise ImportError(
            "courier.trace() needs OpenTelemetry, which is not installed here. "
            f"Run: {extras.install_command('otel')}"
        ) from error
    opentelemetry = module.Spans(tracer_provider)
    spans = opentelemetry


def stop_tracing() -> None:
    """Stop making spans. Spans of calls that are in progress still end.

    Example:
        lp.courier.trace()
        learner.step(batch)                         # a span
        lp.courier.stop_tracing()
    """
    global spans, opentelemetry
    stopped = opentelemetry
    spans = None
    opentelemetry = None
    if stopped is not None:
        stopped.end_dropped()


def _renew() -> None:
    """Stop recording in a forked child: the thread that would end the recording is the parent's."""
    global spans, recorder
    spans = opentelemetry
    recorder = None
    open_waits.clear()


fork.reset_in_child(_renew)
