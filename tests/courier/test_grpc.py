"""Servers that are reached by gRPC: by courier's own clients, and by everybody else's."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import launchpad as lp
from launchpad import courier
from launchpad.courier.call_stack import current_call
from launchpad.courier.grpc import common, json_service
from launchpad.courier.grpc.connection import GrpcConnection
from launchpad.courier.security.certificates import make_credentials
from tests.courier.conftest import DEADLINE_S, Serve, printed_by
from tests.waiting import until

ANY_PORT = "grpc:127.0.0.1:0"
OPEN_PORT = "grpc+plaintext:127.0.0.1:0"  # for callers that show no token
TOKEN = b"a token of 16 by"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module", autouse=True)
def grpc_is_in_use() -> Iterator[None]:
    """While it is, it keeps descriptors of its own; they are no test's leak."""
    server = courier.Server("first", address=ANY_PORT)
    server.bind("ping", lambda: 1)
    server.start()
    with courier.Client(server.address) as client:
        client.ping()
        yield
    server.stop()


Start = Callable[..., courier.Server]


@pytest.fixture
def start(serve: Serve) -> Start:
    """Starts servers: `start(address, name=function, …)`. They are stopped after the test."""
    return partial(serve, name="learner")


@pytest.fixture
def free_address(start: Start) -> str:
    server = start(ANY_PORT)
    server.stop()
    return server.address


@contextlib.contextmanager
def channel_to(server: courier.Server) -> Iterator[grpc.Channel]:
    (target,) = [a for a in server.addresses if a.startswith("grpc")]
    with grpc.insecure_channel(target.partition(":")[2]) as channel:
        yield channel


def call_json(server: courier.Server, method: str, argument: Any, **options: Any) -> Any:
    """As grpcurl does: knows nothing but what reflection says."""
    with channel_to(server) as channel:
        described = describe(channel).methods_by_name[method]
        request = message_factory.GetMessageClass(described.input_type)()
        response_type = message_factory.GetMessageClass(described.output_type)
        invoke = channel.unary_unary(
            f"/launchpad.learner/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response_type.FromString,
        )
        return MessageToDict(invoke(ParseDict(argument, request), timeout=DEADLINE_S, **options))


def describe(channel: grpc.Channel) -> Any:
    """The service of a learner, from what reflection says of it."""
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="launchpad.learner")
    (answer,) = reflect(channel, request)
    pool = descriptor_pool.DescriptorPool()
    for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    return pool.FindFileContainingSymbol("launchpad.learner").services_by_name["learner"]


def reflect(channel: grpc.Channel, request: Any, version: str = "v1") -> list[Any]:
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    return list(ask(iter([request]), timeout=DEADLINE_S))


def status_of(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


# Addresses.


def test_a_taken_second_address_frees_the_first(start, unix_address, free_address) -> None:
    taken = start(ANY_PORT).address
    for address in (unix_address, free_address):
        with pytest.raises(OSError, match="another server"):
            courier.Server(address=address, also_at=[taken]).start()

        start(address, ping=lambda: 1)


def test_addresses_of_all_kinds_stand_in_the_order_given(start, unix_address) -> None:
    also_at = [unix_address, ANY_PORT, "tcp:127.0.0.1:0"]
    server = start(ANY_PORT, also_at=also_at, ping=lambda: "here")

    kinds = [address.partition(":")[0] for address in server.addresses]

    assert kinds == ["grpc", "unix", "grpc", "tcp"]
    assert server.address == server.addresses[0]
    for address in server.addresses:
        with courier.Client(address) as client:
            assert client.ping() == "here"


def test_plaintext_beyond_loopback_has_to_be_asked_for(start, connect) -> None:
    with pytest.raises(PermissionError, match=r"grpc\+plaintext:0\.0\.0\.0:0"):
        courier.Server(address="grpc:0.0.0.0:0").start()
    with pytest.raises(PermissionError, match="beyond loopback"):
        connect("grpc:192.0.2.1:7077").ping()

    server = start("grpc+plaintext:0.0.0.0:0", ping=lambda: "here")

    assert connect(server.address).ping() == "here"


def test_grpc_is_imported_only_for_its_addresses() -> None:
    source = "import sys; from launchpad import courier\n"
    source += "server = courier.Server(); server.start(); server.stop()\n"
    source += "print('grpc' in sys.modules)"

    assert printed_by(source) == "False\n"


def test_without_grpc_the_error_says_what_to_install() -> None:
    source = "import sys; sys.modules['grpc'] = None; from launchpad import courier\n"
    source += f"try: courier.Client({ANY_PORT!r})\nexcept ImportError as error: print(error)"

    assert "pip install 'launchpad-graph[grpc]'" in printed_by(source)


# Health.


def test_health_follows_the_server_and_who_watches_it_hears_of_every_change(start) -> None:
    server = start(ANY_PORT)
    with channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)

        def check(service: str) -> Any:
            return stub.Check(health_pb2.HealthCheckRequest(service=service)).status

        for change, status in [
            (lambda: None, SERVING),
            (lambda: server.set_is_healthy(False), NOT_SERVING),
            (lambda: server.set_is_healthy(True), SERVING),
            (server.drain, NOT_SERVING),
        ]:
            change()
            assert next(watched).status == status
            assert [check(""), check("launchpad.learner")] == [status, status]
        code, _ = status_of(lambda: check("another"))
        assert code is grpc.StatusCode.NOT_FOUND
        server.stop()
        with contextlib.suppress(grpc.RpcError):
            assert list(watched) == []
        # On a busy machine gRPC cuts a watcher off before it has left.
        assert watched.code() in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


def test_health_and_reflection_need_no_token_and_calls_do(start, keys) -> None:
    keys("grpc:", TOKEN)
    server = start(ANY_PORT, add=lambda a, b: a + b)

    with channel_to(server) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    code, text = status_of(lambda: call_json(server, "add", [1, 2]))
    metadata = (("authorization", f"Bearer {TOKEN.hex()}"),)

    assert health.status == SERVING
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "authorization: Bearer" in text
    assert call_json(server, "add", [1, 2], metadata=metadata) == 3


# Reflection and JSON.


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
def test_reflection_lists_services_and_the_methods_that_are_bound_now(start, version: str) -> None:
    server = start(ANY_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflect(channel, request, version)
        names = {service.name for service in answer.list_services_response.service}
        before = describe(channel).methods
        server.bind("later", lambda: 1)
        after = describe(channel).methods

    assert {"launchpad.learner", "grpc.health.v1.Health"} <= names
    assert [method.name for method in before] == ["add"]
    assert [method.name for method in after] == ["add", "later"]


def test_json_lists_are_positional_objects_keyword_arguments_and_whole_numbers_ints(start) -> None:
    server = start(OPEN_PORT, show=lambda *args, **kwargs: repr((args, kwargs)))

    for argument, shown in [
        ([1, "two", None, 3.5], "((1, 'two', None, 3.5), {})"),
        ({"a": [True, 2.5]}, "((), {'a': [True, 2.5]})"),
        ("one", "(('one',), {})"),
        ([[1, 2]], "(([1, 2],), {})"),
    ]:
        assert call_json(server, "show", argument) == shown


def test_arrays_come_back_as_lists_and_calls_are_counted_under_the_callers_host(start) -> None:
    result = {"grid": np.zeros((2, 2), np.float32), "n": np.int64(2), "rest": [None, True, "text"]}
    server = start(OPEN_PORT, get=lambda: result)

    assert call_json(server, "get", []) == {**result, "grid": [[0, 0], [0, 0]]}
    stats = server.stats()
    assert stats.methods["get"].calls == 1
    assert any(client.startswith("grpc ipv4") for client in stats.edges)


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ({"loss": [1.0, float("nan")]}, r"the result\['loss'\]\[1\] is nan"),
        (b"bytes", "the result is a bytes"),
        (2**60, "cannot be exactly"),
        ({1: 2}, "has the key 1"),
    ],
)
def test_what_json_cannot_express_is_named_by_its_place(start, result, where) -> None:
    server = start(OPEN_PORT, get=lambda: result)

    code, text = status_of(lambda: call_json(server, "get", []))

    assert code is grpc.StatusCode.INTERNAL
    assert "the method has run, but the result" in text
    with pytest.raises(json_service.NotJson, match=where):
        json_service.to_value(result)


def test_an_exception_of_a_method_is_unknown_with_its_type_text_and_traceback(start) -> None:
    def fail(error: str) -> None:
        raise KeyError(error)

    server = start(OPEN_PORT, fail=fail)

    with pytest.raises(grpc.RpcError) as caught:
        call_json(server, "fail", ["no such key"])
    large_code, large_text = status_of(lambda: call_json(server, "fail", ["x" * 200_000]))

    assert caught.value.code() is large_code is grpc.StatusCode.UNKNOWN
    assert "KeyError: KeyError('no such key')" in caught.value.details()
    assert b"in fail" in dict(caught.value.trailing_metadata())["traceback-bin"]
    assert large_text.startswith("KeyError: KeyError('xxx")  # cut


def test_an_unknown_method_is_unimplemented_and_lists_those_there_are(start) -> None:
    server = start(OPEN_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        invoke = channel.unary_unary("/launchpad.learner/sub")
        code, text = status_of(lambda: invoke(b""))
        private, _ = status_of(lambda: channel.unary_unary("/launchpad.learner/__call__")(b""))

    assert code is private is grpc.StatusCode.UNIMPLEMENTED
    assert "It serves: add" in text


def test_a_foreign_deadline_is_that_of_the_call(start) -> None:
    server = start(OPEN_PORT, find_time_left=find_time_left)

    assert 0 < call_json(server, "find_time_left", []) < DEADLINE_S + 2  # gRPC rounds


def test_a_draining_server_is_unavailable_to_json_callers(start) -> None:
    server = start(OPEN_PORT, add=lambda a, b: a + b)
    server.drain()

    code, text = status_of(lambda: call_json(server, "add", [1, 2]))

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "has not run" in text


# Courier's own client.


def test_a_courier_client_gets_what_it_gets_elsewhere_and_both_count_it(start, connect) -> None:
    def fail() -> None:
        raise LookupError("gone")

    server = start(ANY_PORT, echo=lambda x: x, fail=fail)
    client = connect(server.address)

    array = np.arange(1 << 20, dtype=np.float32)
    got = client.echo({"a": array, "b": (1, {2})})
    got["a"][0] = 7  # private and writable
    assert np.array_equal(got["a"][1:], array[1:])
    assert got["b"] == (1, {2})
    assert client.futures.echo(1).result(DEADLINE_S) == 1
    assert client.with_options(compress=True).echo("x" * 200_000) == "x" * 200_000
    with pytest.raises(LookupError, match="gone") as caught:
        client.fail()
    assert "in fail" in str(caught.value.__cause__)
    assert isinstance(client.futures.fail().exception(DEADLINE_S), LookupError)
    with pytest.raises(courier.MethodNotFound, match="echo"):
        client.ecko(1)
    assert courier.list_methods(client) == ["echo", "fail"]

    until(lambda: client.stats().methods["fail"].in_flight == 0)  # it is counted a moment later
    for stats in (client.stats(), server.stats()):
        worked, failed = stats.methods["echo"], stats.methods["fail"]
        assert (worked.calls, worked.errors, worked.in_flight) == (3, 0, 0)
        assert (failed.calls, failed.errors, failed.in_flight) == (2, 2, 0)


def test_spans_of_both_sides_are_linked(start, connect) -> None:
    client = connect(start(ANY_PORT, double=lambda x: 2 * x).address)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    courier.trace(provider)
    try:
        client.double(1)
        client.futures.double(1).result(DEADLINE_S)
        until(lambda: len(exporter.get_finished_spans()) >= 4)  # a future's ends behind it
    finally:
        courier.stop_tracing()
        provider.shutdown()

    spans = exporter.get_finished_spans()
    called = [span.context for span in spans if span.kind is SpanKind.CLIENT]
    parents = [span.parent for span in spans if span.kind is SpanKind.SERVER]
    assert [each.span_id for each in parents if each] == [each.span_id for each in called if each]
    assert len(called) == len(parents) == 2


def test_methods_that_wait_for_each_other_find_threads(start, connect) -> None:
    barrier = threading.Barrier(50)
    client = connect(start(ANY_PORT, meet=lambda: barrier.wait(DEADLINE_S)).address)

    futures = [client.futures.meet() for _ in range(50)]

    assert sorted(future.result(DEADLINE_S) for future in futures) == list(range(50))


def test_a_thousand_calls_may_be_outstanding_and_coroutines_hold_no_thread(start, connect) -> None:
    released: list[asyncio.Event] = []

    async def hold() -> int:
        event = asyncio.Event()
        released.append(event)
        await event.wait()
        return threading.active_count()

    async def release() -> None:
        for event in released:
            event.set()

    server = start(ANY_PORT, hold=hold, release=release)
    client = connect(server.address)
    futures = [client.futures.hold() for _ in range(1200)]
    until(lambda: len(released) >= 1200)
    client.release()

    assert max(future.result(DEADLINE_S) for future in futures) < 60


def test_a_call_waits_for_a_server_unless_it_has_failed(start, connect, free_address) -> None:
    client = connect(free_address)
    future = client.futures.ping()
    failures = iter([None, None])
    failed = courier.WorkerFailed("it has failed")

    with pytest.raises(courier.NotSent):
        client.with_options(wait_for_ready=False).ping()
    with pytest.raises(courier.WorkerFailed):
        connect(free_address, failure_check=lambda: next(failures, failed)).ping()
    start(free_address, ping=lambda: "up")

    assert future.result(DEADLINE_S) == "up"


def find_time_left() -> float:
    """Seconds until the deadline of the call that is being served."""
    return current_call.get().deadline - time.monotonic()


def test_a_deadline_ends_a_call_and_travels_with_it(start, connect, gate) -> None:
    client = connect(start(ANY_PORT, hang=gate.wait, find_time_left=find_time_left).address)

    with pytest.raises(courier.DeadlineExceeded, match=r"within 0\.1 s"):
        client.with_options(timeout_s=0.1).hang()

    assert 0 < client.with_options(timeout_s=60).find_time_left() < 62  # gRPC rounds


def test_a_cancelled_future_is_not_begun_and_has_no_caller_if_it_runs(start, connect) -> None:
    ran: list[int] = []

    def run_until_nobody_waits() -> None:
        ran.append(0)
        caller = lp.caller()
        until(lambda: caller.is_gone)

    server = start(ANY_PORT, size=1, wait=run_until_nobody_waits, note=ran.append)
    server._core.pool._may_grow = lambda: False
    client = connect(server.address)
    running = client.futures.wait()
    until(lambda: ran)
    queued = [client.futures.note(i) for i in (1, 2, 3)]
    until(lambda: len(server._core.pool._jobs) >= 3)

    assert all(future.cancel() for future in [*queued, running])
    client.futures.note(4).result(DEADLINE_S)

    assert ran == [0, 4]


@pytest.mark.parametrize("token", [b"", b"another token 16"])
def test_a_call_with_a_wrong_token_is_refused_unread(start, connect, token: bytes) -> None:
    server = start(ANY_PORT, token=TOKEN, ping=lambda: 1)
    sent: list[int] = []

    def body() -> Iterator[bytes]:
        for i in itertools.count():
            sent.append(i)
            yield bytes(1 << 20)

    with channel_to(server) as channel:
        call = channel.stream_unary(common.CALL)
        code, _ = status_of(lambda: call(body(), metadata=((common.TOKEN, token),)))

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert len(sent) < 64
    with pytest.raises(courier.Refused):
        connect(server.address, token=token).ping()


def test_a_call_meant_for_another_incarnation_does_not_run(start) -> None:
    ran: list[int] = []
    server = start(OPEN_PORT, note=ran.append)
    frame = common.encode_frame(1, b"note", pickle.dumps(((1,), {})), [])
    with channel_to(server) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(common.CALL)(frame, metadata=((common.INCARNATION, b"x" * 16),))

    assert (common.NOT_RUN, "incarnation") in caught.value.trailing_metadata()
    assert ran == []


def test_a_stream_is_an_error_that_says_so(start, connect) -> None:
    server = start(OPEN_PORT, count=lambda: iter([1]), ping=lambda: 1)
    client = connect(server.address)

    with pytest.raises((courier.RemoteError, TypeError), match="gRPC carries no streams"):
        client.count()
    code, text = status_of(lambda: call_json(server, "count", []))

    assert code is grpc.StatusCode.UNKNOWN
    assert "gRPC carries no streams" in text
    assert client.ping() == 1


def test_an_object_with_next_is_no_stream(start, connect) -> None:
    client = connect(start(ANY_PORT, echo=lambda value: value).address)

    assert client.echo(io.BytesIO(b"one\ntwo\n")).getvalue() == b"one\ntwo\n"
    with pytest.raises(TypeError, match="gRPC carries no streams"):
        client.echo(courier.stream(io.BytesIO()))


def test_too_large_arguments_are_an_error_of_the_caller(start, connect) -> None:
    server = start(ANY_PORT, max_bytes=1 << 20, echo=lambda x: x)
    client = connect(server.address)

    with pytest.raises(courier.MessageTooLarge):
        client.echo(bytes(2 << 20))
    with pytest.raises(courier.MessageTooLarge, match="result"):
        connect(server.address, max_bytes=1000).echo(bytes(2000))

    assert client.echo(1) == 1


def test_a_killed_server_leaves_no_call_open(connect, spawn_server, free_address) -> None:
    process = spawn_server(free_address)
    client = connect(free_address)
    restarts: list[int] = []
    courier.on_restart(client, lambda: restarts.append(1))
    futures = [client.futures.hang() for _ in range(20)]
    repeated = client.with_options(idempotent=True).futures.hang()
    until(lambda: client.n_hanging() >= 21)

    process.kill()
    process.wait()
    for future in futures:
        with pytest.raises(courier.OutcomeUnknown, match="victim"):
            future.result(DEADLINE_S)
    until(lambda: client._channel.n_connections == 0)
    waiting = client.futures.pid()
    second = spawn_server(free_address)

    assert waiting.result(DEADLINE_S) == second.pid
    assert restarts == [1]
    until(lambda: client.n_hanging() >= 1)  # the one that may run twice has been called again
    assert not repeated.done()


def test_a_call_that_meets_the_next_server_before_its_client_knows_is_answered(
    connect, serve, monkeypatch, free_address
) -> None:
    """The next server has made a token of its own, and gRPC connects to it by itself."""
    first = serve(free_address, who=lambda: "first")
    client = connect(free_address)
    with monkeypatch.context() as it_knows_of_nothing:
        it_knows_of_nothing.setattr(GrpcConnection, "_on_lost", lambda self, open_call: None)
        assert client.who() == "first"
    first.stop()
    serve(free_address, who=lambda: "second")

    assert client.futures.who().result(DEADLINE_S) == "second"


def test_closing_a_client_ends_its_futures(start, connect, gate, free_address) -> None:
    server = start(ANY_PORT, hang=gate.wait)
    clients = [connect(server.address), connect(free_address)]
    futures = [client.futures.hang() for client in clients]
    assert gate.begun.wait(DEADLINE_S)

    for client in clients:
        courier.close(client)

    kinds = [type(future.exception(DEADLINE_S)) for future in futures]
    assert kinds == [courier.OutcomeUnknown, courier.NotSent]


def test_stop_waits_for_the_calls_that_run(start, connect, gate) -> None:
    server = start(ANY_PORT, work=gate.wait)
    future = connect(server.address).futures.work()
    assert gate.begun.wait(DEADLINE_S)
    threading.Timer(0.1, gate.set).start()
    server.stop(DEADLINE_S)

    assert future.result(DEADLINE_S) is True


def test_a_method_may_stop_its_own_server(start, connect) -> None:
    server = start(ANY_PORT)
    server.bind("stop", lambda: server.stop(5.0) or "stopped")  # type: ignore[func-returns-value]

    assert connect(server.address).stop() == "stopped"
    assert not server.has_started


def test_credentials_make_it_tls_and_others_are_refused(start, connect, keys) -> None:
    keys("grpc:127.0.0.1:", TOKEN, make_credentials())
    server = start(ANY_PORT, ping=lambda: "safe")
    assert connect(server.address).ping() == "safe"

    keys("grpc:127.0.0.1:", TOKEN, make_credentials())

    with pytest.raises(courier.Refused):
        connect(server.address).ping()
    with channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        code, _ = status_of(lambda: stub.Check(health_pb2.HealthCheckRequest()))
    assert code is grpc.StatusCode.UNAVAILABLE


FORKED = """
import os
from launchpad import courier

server = courier.Server(address="grpc:127.0.0.1:0")
server.bind("ping", lambda: "alive")
server.start()
with courier.Client(server.address) as client:
    client.ping()
    child = os.fork()
    if child == 0:
        try:
            client.ping()
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(client.ping())
server.stop()
"""


def test_a_forked_child_says_that_grpc_does_not_survive_a_fork() -> None:
    said = printed_by(FORKED)

    assert "was forked from one" in said
    assert said.endswith("alive\n")


class Learner:
    """A node that says where it is."""

    def set_courier_server(self, server: courier.Server) -> None:
        self._server = server

    def where(self) -> list[str]:
        return self._server.addresses


def test_a_node_of_a_program_is_also_at_a_grpc_address() -> None:
    program = lp.Program("with grpc")
    node = lp.CourierNode(Learner, courier_kwargs={"also_at": [ANY_PORT]})
    program.add_node(node, label="learner")

    with lp.launch(program, launch_type="local_mp") as running:
        (address,) = [a for a in running.client("learner").where() if a.startswith("grpc")]
        with grpc.insecure_channel(address.partition(":")[2]) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        running.stop()

    assert health.status == SERVING
