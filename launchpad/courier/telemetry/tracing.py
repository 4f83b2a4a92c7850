"""Spans of OpenTelemetry: off until `trace` is called.

    trace() ──▶ spans = Spans(…)      channel.call, channel.submit    look at `spans`, once per call
    stop_tracing() ──▶ spans = None   Dispatcher.answer_for           looks where a frame has headers

While it is off nothing of OpenTelemetry is imported, and a call costs one look at a global more.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier import extras

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import TracerProvider


class Tracer(Protocol):
    """What makes a span of each call: `opentelemetry.Spans`."""

    def call(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any: ...

    def submit(
        self, channel: Any, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Future[Any]: ...

    def answer(
        self, methods: Any, trace: bytes, method: bytes, body: Any, buffers: Sequence[Any], /
    ) -> tuple[int, Any, list[memoryview]]: ...

    def end_dropped(self) -> None: ...


spans: Tracer | None = None


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

    Raises ImportError where OpenTelemetry is not installed.
    """
    global spans
    try:
        module = importlib.import_module("launchpad.courier.opentelemetry")
    except ImportError as error:
        raise ImportError(
            "courier.trace() needs OpenTelemetry, which is not installed here. "
            f"Run: {extras.install_command('otel')}"
        ) from error
    spans = module.Spans(tracer_provider)


def stop_tracing() -> None:
    """Makes no more spans. Those of calls under way still end."""
    global spans
    stopped, spans = spans, None
    if stopped is not None:
        stopped.end_dropped()
