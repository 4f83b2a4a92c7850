"""Spans of calls: exported by OpenTelemetry from `trace` on, or recorded for some seconds. Off until then.

    trace() ──▶ opentelemetry = Spans(…)     channel.call, channel.submit    look at `spans`, once per call
    recording.record() ──▶ recorder          Dispatcher.answer_for           where a frame has headers

`spans` is the recorder while it takes calls, and it passes them on; else OpenTelemetry's, if there are any.
While both are off nothing of OpenTelemetry is imported, and a call costs one look at a global more.
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
    """What makes a span of each call that is made here."""

    def call(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any: ...

    def submit(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Future[Any]: ...


class Tracer(CallTracer, Protocol):
    """The same, and of those that are answered: `opentelemetry.Spans`."""

    def answer(
        self, methods: Any, trace: bytes, method: bytes, body: Any, buffers: Sequence[Any], /
    ) -> tuple[int, Any, list[memoryview]]: ...

    def end_dropped(self) -> None: ...


class SpanRecorder(CallTracer, Protocol):
    """What keeps spans for a while: `recording.ProcessRecorder`."""

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
"""What threads wait in now: a recording shows also those that began before it."""


class Wait:
    """Within it the calling thread waits for others, which recordings show. Costs about a microsecond.

    Example:
        with tracing.Wait("barrier"):
            marks.wait_for(is_over)
    """

    __slots__ = ("began_ns", "peer", "thread", "what")

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.peer: Peer = own_peer()
        self.thread = threading.get_native_id(), threading.current_thread().name
        self.began_ns = time.monotonic_ns()
        open_waits[id(self)] = self

    def __exit__(self, *_: object) -> None:
        open_waits.pop(id(self), None)
        if recorder is not None:
            recorder.end_wait(self)


def quick_wait(what: str) -> AbstractContextManager[None]:
    """The same for what may take microseconds: noted only if a recording is on when it begins."""
    return _NOTHING if recorder is None else Wait(what)


def trace(tracer_provider: TracerProvider | None = None) -> None:
    """From now on the calls of this process are spans of OpenTelemetry. Needs `launchpad-graph[otel]`.

    Example:
        provider = TracerProvider(resource=Resource({"service.name": lp.current().name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        courier.trace(provider)

    A call made here is a CLIENT span, a call of another process that traces too, and that is served
    here, a SERVER span. The two are linked: the caller's span travels with the call (W3C Trace
    Context). Calls that a method makes are children of its span, if they are made in the same thread
    or coroutine. Errors are recorded. The span of a future ends when its outcome is here.

    Call it in each process, once: in a node's constructor, or where its module is imported.

    Args:
        tracer_provider: None is OpenTelemetry's global one.

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
    spans = opentelemetry = module.Spans(tracer_provider)


def stop_tracing() -> None:
    """Makes no more spans. Those of calls under way still end.

    Example:
        lp.courier.trace()
        learner.step(batch)                         # a span
        lp.courier.stop_tracing()
    """
    global spans, opentelemetry
    stopped, spans, opentelemetry = opentelemetry, None, None
    if stopped is not None:
        stopped.end_dropped()


def _renew() -> None:
    """A forked process records nothing: the thread that would end it is the parent's."""
    global spans, recorder
    spans, recorder = opentelemetry, None
    open_waits.clear()


fork.reset_in_child(_renew)
