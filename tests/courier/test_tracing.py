"""Spans: one of the caller, one of the server, linked, for every carrier and kind of call."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode, Tracer, format_span_id, format_trace_id

from launchpad import courier
from launchpad.courier import opentelemetry
from tests.courier.conftest import DEADLINE_S, REPOSITORY, Connect, Serve


class Traced:
    """What has been traced, and the tracer of the user's own spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    def spans(self, n: int) -> list[ReadableSpan]:
        """The spans that have ended, the first to begin first; waits until there are `n`."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := self._exporter.get_finished_spans()) < n:
            assert time.monotonic() < deadline, f"only {[span.name for span in found]} have ended"
            time.sleep(0.001)
        assert len(found) == n, [span.name for span in found]
        return sorted(found, key=lambda span: span.start_time or 0)

    def ended(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    courier.trace(traced.provider)
    yield traced
    courier.stop_tracing()
    traced.provider.shutdown()


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.context is not None
    assert parent.context is not None
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
    )


def is_chain(chain: list[ReadableSpan]) -> bool:
    return chain[0].parent is None and all(map(is_child, chain[1:], chain))


def wait(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client, method)(*args)


def with_a_deadline(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client.with_options(timeout_s=DEADLINE_S), method)(*args)


def as_a_future(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client.futures, method)(*args).result(DEADLINE_S)


def awaited(client: courier.Client[Any], method: str, *args: Any) -> Any:
    async def main() -> Any:
        return await getattr(client.aio, method)(*args)

    return asyncio.run(main())


KINDS = [wait, with_a_deadline, as_a_future, awaited]


@pytest.fixture(params=KINDS, ids=[kind.__name__ for kind in KINDS])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    found: Callable[..., Any] = request.param
    return found


# --- which spans -------------------------------------------------------------------------------


@pytest.mark.every_transport
def test_a_call_is_a_span_of_the_caller_and_one_of_the_server(
    address: str, serve: Serve, connect: Connect, traced: Traced, call: Callable[..., Any]
) -> None:
    serve(address, name="learner-0", step=lambda x: x + 1)
    client = connect(address)

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


def test_a_call_is_a_child_of_the_span_it_is_made_in(
    address: str, serve: Serve, connect: Connect, traced: Traced, call: Callable[..., Any]
) -> None:
    serve(address, step=lambda: None)
    client = connect(address)

    with traced.tracer.start_as_current_span("the caller's own"):
        call(client, "step")

    assert is_chain(traced.spans(3))


def test_calls_made_while_serving_are_children_of_the_served_one(
    address: str,
    other_address: str,
    serve: Serve,
    connect: Connect,
    traced: Traced,
    call: Callable[..., Any],
) -> None:
    serve(other_address, name="second", work=lambda: None)
    to_second = connect(other_address, name="second")
    serve(address, name="first", relay=lambda: call(to_second, "work"))

    call(connect(address, name="first"), "relay")

    chain = traced.spans(4)
    assert [span.name for span in chain] == ["first/relay"] * 2 + ["second/work"] * 2
    assert is_chain(chain)


def test_spans_of_a_coroutine_last_as_long_as_it_does(
    address: str, serve: Serve, connect: Connect, traced: Traced
) -> None:
    resume = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def relay() -> None:
        loops.append(asyncio.get_running_loop())
        with traced.tracer.start_as_current_span("in the coroutine"):
            await resume.wait()

    serve(address, relay=relay)
    future = connect(address).futures.relay()
    deadline = time.monotonic() + DEADLINE_S
    while not loops:
        assert time.monotonic() < deadline

    before = traced.ended()
    loops[0].call_soon_threadsafe(resume.set)
    future.result(DEADLINE_S)

    assert before == []
    assert is_chain(traced.spans(3))


def test_nothing_of_a_call_is_current_after_it(
    address: str, serve: Serve, connect: Connect, traced: Traced
) -> None:
    serve(address, step=lambda: None)
    client = connect(address)

    client.step()
    client.step()

    assert len({span.context.trace_id for span in traced.spans(4) if span.context}) == 2


# --- how they end ------------------------------------------------------------------------------


def test_errors_are_recorded_on_both_sides(
    address: str, serve: Serve, connect: Connect, traced: Traced, call: Callable[..., Any]
) -> None:
    def fail() -> None:
        raise KeyError("the embedding")

    serve(address, fail=fail)
    client = connect(address)

    with pytest.raises(KeyError):
        call(client, "fail")

    for span in traced.spans(2):
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "KeyError"
        assert "in fail" in str(event.attributes["exception.stacktrace"])
        assert span.status.status_code is StatusCode.ERROR
        assert "the embedding" in str(span.status.description)
        assert (span.attributes or {})["error.type"] == "KeyError"


def test_errors_of_coroutines_are_recorded_on_both_sides(
    address: str, serve: Serve, connect: Connect, traced: Traced
) -> None:
    async def fail() -> None:
        raise KeyError("the embedding")

    serve(address, fail=fail)

    with pytest.raises(KeyError):
        connect(address).fail()

    assert [span.status.status_code for span in traced.spans(2)] == [StatusCode.ERROR] * 2


def test_the_span_of_a_future_ends_when_its_outcome_is_here(
    address: str, serve: Serve, connect: Connect, traced: Traced, gate: threading.Event
) -> None:
    serve(address, block=gate.wait)

    future = connect(address).futures.block()
    before = traced.ended()
    gate.set()
    future.result(DEADLINE_S)

    assert before == []
    outer, inner = traced.spans(2)
    assert (outer.end_time or 0) >= (inner.end_time or 1)


def test_the_span_of_a_cancelled_future_says_so(
    address: str, serve: Serve, connect: Connect, traced: Traced, gate: threading.Event
) -> None:
    serve(address, block=gate.wait)
    future = connect(address).futures.block()

    assert future.cancel()

    (span,) = [span for span in traced.spans(1) if span.kind is SpanKind.CLIENT]
    assert (span.attributes or {})["error.type"] == CancelledError.__qualname__


def test_a_call_that_is_not_answered_in_time_ends_its_span(
    address: str, serve: Serve, connect: Connect, traced: Traced, gate: threading.Event
) -> None:
    serve(address, block=gate.wait)

    with pytest.raises(courier.DeadlineExceeded):
        connect(address, call_timeout=0.05).block()

    (span,) = traced.spans(1)
    assert (span.attributes or {})["error.type"] == "DeadlineExceeded"


def test_a_future_that_cannot_be_sent_ends_its_span(
    address: str, serve: Serve, connect: Connect, traced: Traced
) -> None:
    serve(address, take=lambda x: None)

    with pytest.raises(TypeError):
        connect(address).futures.take(threading.Lock())

    (span,) = traced.spans(1)
    assert span.status.status_code is StatusCode.ERROR


def test_spans_that_have_begun_end_although_tracing_is_stopped_meanwhile(
    address: str, serve: Serve, connect: Connect, traced: Traced, gate: threading.Event
) -> None:
    began = threading.Event()
    serve(address, block=lambda: began.set() or gate.wait())
    future = connect(address).futures.block()
    assert began.wait(DEADLINE_S)

    courier.stop_tracing()
    gate.set()
    future.result(DEADLINE_S)
    connect(address).block()

    assert {span.kind for span in traced.spans(2)} == {SpanKind.CLIENT, SpanKind.SERVER}


# --- streams -----------------------------------------------------------------------------------


class Source:
    """Methods that are streams; what they do in between is in a span of their own."""

    def __init__(self, traced: Traced) -> None:
        self._tracer = traced.tracer

    def rows(self, n: int) -> Iterator[int]:
        with self._tracer.start_as_current_span("in the generator"):
            yield from range(n)
        if n == 3:
            raise KeyError("the fourth")

    async def arows(self, n: int) -> AsyncIterator[int]:
        for row in self.rows(n):
            await asyncio.sleep(0)
            yield row


@pytest.fixture(params=["rows", "arows"])
def rows(request: pytest.FixtureRequest, traced: Traced) -> Callable[[int], Any]:
    found: Callable[[int], Any] = getattr(Source(traced), request.param)
    return found


@pytest.mark.every_transport
@pytest.mark.parametrize("call", [wait, with_a_deadline, as_a_future])
def test_the_spans_of_a_stream_last_as_long_as_it_does(
    address: str,
    serve: Serve,
    connect: Connect,
    traced: Traced,
    rows: Callable[[int], Any],
    call: Callable[..., Any],
) -> None:
    serve(address, rows=rows)

    stream = call(connect(address), "rows", 1000)
    first, before = next(stream), traced.ended()

    assert (first, before) == (0, [])
    assert list(stream) == list(range(1, 1000))
    assert is_chain(traced.spans(3))


def test_the_spans_of_a_stream_that_coroutines_read_last_as_long_as_it_does(
    address: str, serve: Serve, connect: Connect, traced: Traced, rows: Callable[[int], Any]
) -> None:
    serve(address, rows=rows)
    client = connect(address)

    async def read() -> list[int]:
        return [row async for row in client.aio.rows(1000)]

    assert asyncio.run(read()) == list(range(1000))
    assert is_chain(traced.spans(3))


def test_an_error_that_ends_a_stream_is_recorded_on_both_sides(
    address: str, serve: Serve, connect: Connect, traced: Traced, rows: Callable[[int], Any]
) -> None:
    serve(address, rows=rows)

    with pytest.raises(KeyError):
        list(connect(address).rows(3))

    outer, inner, _ = traced.spans(3)
    for span in (outer, inner):
        assert (span.attributes or {})["error.type"] == "KeyError"


def test_the_spans_of_a_stream_end_when_it_is_closed(
    address: str, serve: Serve, connect: Connect, traced: Traced, rows: Callable[[int], Any]
) -> None:
    serve(address, rows=rows)

    with connect(address).rows(1_000_000) as stream:
        next(stream)

    assert is_chain(chain := traced.spans(3))
    assert {span.status.status_code for span in chain} == {StatusCode.UNSET}


def test_the_spans_of_a_stream_that_was_dropped_end_with_the_next_call(
    address: str, serve: Serve, connect: Connect, traced: Traced, rows: Callable[[int], Any]
) -> None:
    serve(address, rows=rows, work=lambda: None)
    client = connect(address)
    stream = client.rows(1_000_000)
    next(stream)

    del stream
    gc.collect()
    client.work()

    found = traced.spans(5)
    assert is_chain([span for span in found if not span.name.endswith("work")])


def test_the_spans_of_a_stream_that_was_dropped_end_when_tracing_does(
    address: str, serve: Serve, connect: Connect, traced: Traced, rows: Callable[[int], Any]
) -> None:
    serve(address, rows=rows)
    stream = connect(address).rows(1_000_000)
    next(stream)

    del stream
    gc.collect()
    courier.stop_tracing()

    assert is_chain(traced.spans(3))


@pytest.mark.parametrize("call", [wait, as_a_future])
def test_calls_whose_arguments_are_streams_are_spans_as_others(
    address: str, serve: Serve, connect: Connect, traced: Traced, call: Callable[..., Any]
) -> None:
    serve(address, total=sum)

    assert call(connect(address), "total", iter(range(1000))) == sum(range(1000))
    assert is_chain(traced.spans(2))


# --- across processes --------------------------------------------------------------------------

SERVER = """
import sys
sys.path.insert(0, {repository!r})
from launchpad import courier
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
courier.trace(provider)
server = courier.Server("server", address={address!r})
server.bind("work", lambda: None)
server.start()
print("up", flush=True)
sys.stdin.readline()
server.stop()
for span in exporter.get_finished_spans():
    print(span.name, format_trace_id(span.context.trace_id), format_span_id(span.parent.span_id))
"""

Python = Callable[[str], AbstractContextManager["subprocess.Popen[str]"]]


@pytest.mark.slow
def test_spans_of_two_processes_are_linked(
    unix_address: str, connect: Connect, traced: Traced, python: Python
) -> None:
    with python(SERVER.format(repository=str(REPOSITORY), address=unix_address)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        client = connect(unix_address, name="server")

        client.work()
        client.futures.work().result(DEADLINE_S)
        printed, _ = process.communicate("stop\n", timeout=DEADLINE_S)

    mine = [span.context for span in traced.spans(2)]
    assert printed.splitlines() == [
        f"server/work {format_trace_id(context.trace_id)} {format_span_id(context.span_id)}"
        for context in mine
        if context is not None
    ]


def test_a_server_that_does_not_trace_answers_one_who_does(
    unix_address: str,
    connect: Connect,
    traced: Traced,
    spawn_server: Callable[[str], subprocess.Popen[str]],
) -> None:
    spawn_server(unix_address)

    assert connect(unix_address).echo(5) == 5
    assert [span.kind for span in traced.spans(1)] == [SpanKind.CLIENT]


def test_what_the_caller_does_not_sample_the_server_does_not_either(
    address: str, serve: Serve, connect: Connect
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(root=ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    courier.trace(provider)
    try:
        serve(address, work=lambda: None)
        connect(address).work()
    finally:
        courier.stop_tracing()
        provider.shutdown()

    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("trace", [b"", b"\xff\xfe", b"00-zz-11-01", b"\n\n\n"])
def test_a_span_of_the_caller_that_makes_no_sense_is_passed_over(trace: bytes) -> None:
    assert opentelemetry._context_of(trace) == {}


def test_the_state_of_a_trace_travels_with_it() -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nvendor=opaque,other=1"

    (span,) = opentelemetry._context_of(trace).values()

    assert opentelemetry._trace_of(span) == trace


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("unix:/run/a/s.sock", {"network.transport": "unix", "server.address": "/run/a/s.sock"}),
        ("inproc:7/learner", {"network.transport": "inproc", "server.address": "7/learner"}),
        (
            "tcp+plaintext:10.0.0.7:5000",
            {"network.transport": "tcp", "server.address": "10.0.0.7", "server.port": 5000},
        ),
        (
            "grpc:learner-0.example:7077",
            {
                "network.transport": "tcp",
                "server.address": "learner-0.example",
                "server.port": 7077,
            },
        ),
        (
            "tcp:[::1]:5000",
            {"network.transport": "tcp", "server.address": "::1", "server.port": 5000},
        ),
    ],
)
def test_spans_say_where_the_server_is(address: str, place: dict[str, Any]) -> None:
    assert opentelemetry._describe_address(address) == place


# --- off ---------------------------------------------------------------------------------------


def test_nothing_of_opentelemetry_is_imported_before_it_is_asked_for() -> None:
    source = """
import sys
from launchpad import courier
server = courier.Server("server", address="inproc:s")
server.bind("work", lambda: None)
server.start()
with courier.Client("inproc:s") as client:
    client.work()
    client.futures.work().result()
server.stop()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )

    assert done.stdout == "[]\n"


def test_without_opentelemetry_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "launchpad.courier.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ImportError, match=r"pip install 'launchpad-graph\[otel\]'"):
        courier.trace()
