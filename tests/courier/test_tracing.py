"""Spans: one of the caller, one of the server, linked, for every carrier and kind of call."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from launchpad import courier
from launchpad.courier import opentelemetry
from tests.courier.conftest import DEADLINE_S, begin_source
from tests.helpers.calls import KINDS, as_a_future, as_async, wait
from tests.waiting import until


class Traced:
    """What has been traced, and the tracer of the user's own spans."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(ParentBased(root=sampler))
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    def spans(self, n: int) -> list[ReadableSpan]:
        """The spans that have ended, the first to begin first; waits until there are `n`."""
        until(lambda: len(self._exporter.get_finished_spans()) >= n, DEADLINE_S)
        found = self._exporter.get_finished_spans()
        assert len(found) == n, self.ended()
        return sorted(found, key=lambda span: span.start_time or 0)

    def ended(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]


@pytest.fixture
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    traced = Traced(*getattr(request, "param", []))
    courier.trace(traced.provider)
    yield traced
    courier.stop_tracing()
    traced.provider.shutdown()


def is_child(child: Any, parent: Any) -> bool:
    return child.parent is not None and (
        (child.parent.span_id, child.context.trace_id)
        == (parent.context.span_id, parent.context.trace_id)
    )


def is_chain(chain: list[ReadableSpan]) -> bool:
    return chain[0].parent is None and all(map(is_child, chain[1:], chain))


def error_type(span: ReadableSpan) -> object:
    return (span.attributes or {})["error.type"]


# --- which spans -------------------------------------------------------------------------------


@pytest.mark.every_transport
@pytest.mark.parametrize("call", KINDS)
def test_a_call_is_a_span_at_both_ends(client_of, address, traced, call) -> None:
    client = client_of(name="learner-0", step=lambda x: x + 1)

    assert call(client, "step", 1) == 2

    outer, inner = traced.spans(2)
    assert (outer.kind, inner.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert is_chain([outer, inner])
    for span in (outer, inner):
        assert span.name == "learner-0/step"
        assert span.status.status_code is StatusCode.UNSET
        assert dict(span.attributes or {}) == {
            "rpc.system": "courier",
            "rpc.service": "learner-0",
            "rpc.method": "step",
            **opentelemetry._describe_address(address),
        }


@pytest.mark.parametrize("call", KINDS)
def test_a_call_is_a_child_of_the_span_it_is_made_in_and_so_of_a_served_call(
    serve, connect, address, other_address, traced, call
) -> None:
    serve(other_address, name="second", work=lambda: None)
    to_second = connect(other_address, name="second")
    serve(address, name="first", relay=lambda: call(to_second, "work"))

    with traced.tracer.start_as_current_span("own"):
        call(connect(address, name="first"), "relay")

    chain = traced.spans(5)
    assert [span.name for span in chain] == ["own", *["first/relay"] * 2, *["second/work"] * 2]
    assert is_chain(chain)


def test_nothing_of_a_call_is_current_after_it(client_of, traced) -> None:
    client = client_of(step=lambda: None)

    client.step()
    client.step()

    assert len({span.context.trace_id for span in traced.spans(4) if span.context}) == 2


# --- how they end ------------------------------------------------------------------------------


@pytest.mark.parametrize("call", KINDS)
def test_errors_are_recorded_on_both_sides(client_of, traced, call) -> None:
    def fail() -> None:
        raise KeyError("the embedding")

    async def fail_async() -> None:
        raise KeyError("the embedding")

    client = client_of(fail=fail, fail_async=fail_async)

    for method in ("fail", "fail_async"):
        with pytest.raises(KeyError):
            call(client, method)

    for span in traced.spans(4):
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "KeyError"
        assert "in fail" in str(event.attributes["exception.stacktrace"])
        assert span.status.status_code is StatusCode.ERROR
        assert "the embedding" in str(span.status.description)
        assert error_type(span) == "KeyError"


def test_spans_of_futures_and_coroutines_last_as_long_as_they_do(client_of, traced, gate) -> None:
    async def relay() -> None:
        with traced.tracer.start_as_current_span("in the coroutine"):
            await asyncio.to_thread(gate.wait)

    future = client_of(relay=relay).futures.relay()
    before = traced.ended()
    gate.set()
    future.result(DEADLINE_S)

    assert before == []
    outer, inner, own = traced.spans(3)
    assert is_chain([outer, inner, own])
    assert outer.end_time >= inner.end_time >= own.end_time


def test_calls_that_are_cancelled_late_or_not_sent_end_their_spans(client_of, traced, gate) -> None:
    client = client_of(block=lambda x: gate.wait())

    assert client.futures.block(1).cancel()
    with pytest.raises(courier.DeadlineExceeded):
        client.with_options(timeout_s=0.05).block(2)
    with pytest.raises(TypeError):
        client.futures.block(threading.Lock())

    spans = traced.spans(3)  # those of the server go on
    assert {span.kind for span in spans} == {SpanKind.CLIENT}
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert [error_type(span) for span in spans] == [
        "CancelledError",
        "DeadlineExceeded",
        "TypeError",
    ]


def test_spans_that_have_begun_end_although_tracing_is_stopped(client_of, traced, gate) -> None:
    began = threading.Event()
    client = client_of(block=lambda: began.set() or gate.wait())
    future = client.futures.block()
    assert began.wait(DEADLINE_S)

    courier.stop_tracing()
    gate.set()
    future.result(DEADLINE_S)
    client.block()

    assert {span.kind for span in traced.spans(2)} == {SpanKind.CLIENT, SpanKind.SERVER}


# --- streams -----------------------------------------------------------------------------------


@pytest.fixture(params=["generator", "async generator"])
def rows(request: pytest.FixtureRequest, traced: Traced) -> Callable[[int], Any]:
    """A method that is a stream; what it does in between is in a span of its own."""

    def rows(n: int) -> Iterator[int]:
        with traced.tracer.start_as_current_span("in the generator"):
            yield from range(n)
        if n == 3:
            raise KeyError("the fourth")

    return rows if request.param == "generator" else as_async(rows)


@pytest.mark.every_transport
@pytest.mark.parametrize("call", [wait, as_a_future])
def test_the_spans_of_a_stream_last_as_long_as_it_does(client_of, traced, rows, call) -> None:
    stream = call(client_of(rows=rows), "rows", 1000)
    first, before = next(stream), traced.ended()

    assert (first, before) == (0, [])
    assert list(stream) == list(range(1, 1000))
    assert is_chain(traced.spans(3))


def test_the_spans_of_a_stream_that_coroutines_read_last_as_long(client_of, traced, rows) -> None:
    client = client_of(rows=rows)

    async def read() -> list[int]:
        return [row async for row in client.aio.rows(1000)]

    assert asyncio.run(read()) == list(range(1000))
    assert is_chain(traced.spans(3))


def test_an_error_that_ends_a_stream_is_recorded_on_both_sides(client_of, traced, rows) -> None:
    with pytest.raises(KeyError):
        list(client_of(rows=rows).rows(3))

    outer, inner, _ = traced.spans(3)
    assert error_type(outer) == error_type(inner) == "KeyError"


@pytest.mark.parametrize("end", ["close", "drop, and call", "drop, and stop tracing"])
def test_the_spans_of_a_stream_that_is_closed_or_dropped_end(client_of, traced, rows, end) -> None:
    client = client_of(rows=rows, work=lambda: None)
    stream = client.rows(1_000_000)
    next(stream)

    if end == "close":
        stream.close()
    del stream
    gc.collect()
    if end == "drop, and call":
        client.work()
    else:
        courier.stop_tracing()

    spans = traced.spans(5 if end == "drop, and call" else 3)
    chain = [span for span in spans if not span.name.endswith("work")]
    assert is_chain(chain)
    assert {span.status.status_code for span in chain} == {StatusCode.UNSET}


@pytest.mark.parametrize("call", [wait, as_a_future])
def test_calls_whose_arguments_are_streams_are_spans_as_others(client_of, traced, call) -> None:
    client = client_of(total=sum)

    assert call(client, "total", iter(range(1000))) == sum(range(1000))
    assert is_chain(traced.spans(2))


def test_a_server_without_tracing_answers_all(connect, unix_address, traced, spawn_server) -> None:
    spawn_server(unix_address)

    assert connect(unix_address).echo(5) == 5
    assert [span.kind for span in traced.spans(1)] == [SpanKind.CLIENT]


@pytest.mark.parametrize("traced", [[ALWAYS_OFF]], indirect=True)
def test_what_the_caller_does_not_sample_the_server_does_not_either(client_of, traced) -> None:
    client_of(work=lambda: None).work()

    assert traced.ended() == []


@pytest.mark.parametrize("trace", [b"", b"\xff\xfe", b"00-zz-11-01", b"\n\n\n"])
def test_a_span_of_the_caller_that_makes_no_sense_is_passed_over(trace: bytes) -> None:
    assert opentelemetry._context_of(trace) == {}


def test_the_state_of_a_trace_travels_with_it() -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nvendor=opaque,other=1"

    (span,) = opentelemetry._context_of(trace).values()

    assert opentelemetry._trace_of(span) == trace


@pytest.mark.parametrize(
    ("address", "transport", "host", "port"),
    [
        ("unix:/run/a/s.sock", "unix", "/run/a/s.sock", None),
        ("inproc:7/learner", "inproc", "7/learner", None),
        ("tcp+plaintext:10.0.0.7:5000", "tcp", "10.0.0.7", 5000),
        ("grpc:learner-0.example:7077", "tcp", "learner-0.example", 7077),
        ("tcp:[::1]:5000", "tcp", "::1", 5000),
    ],
)
def test_spans_say_where_the_server_is(address, transport, host, port) -> None:
    place = opentelemetry._describe_address(address)

    assert place.pop("server.port", None) == port
    assert place == {"network.transport": transport, "server.address": host}


def test_nothing_of_opentelemetry_is_imported_before_it_is_asked_for(python) -> None:
    source = """
server = courier.Server("server", address="inproc:s")
server.bind("work", lambda: None)
server.start()
with courier.Client("inproc:s") as client:
    client.work()
    client.futures.work().result()
server.stop()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    with python(begin_source() + source) as process:
        assert process.stdout.read() == "[]\n"


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "launchpad.courier.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ImportError, match=r"pip install 'launchpad-graph\[otel\]'"):
        courier.trace()
