"""Servers that are reached by gRPC: by courier's own clients, and by everybody else's."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import launchpad as lp
from launchpad import courier
from launchpad.courier import call_deadlock, keyring
from launchpad.courier.client import remote_server
from launchpad.courier.grpc import common, json_service
from launchpad.courier.grpc.connection import GrpcConnection
from launchpad.courier.security.certificates import make_credentials
from tests.courier.conftest import DEADLINE_S, Connect, Serve
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


_servers: list[courier.Server] = []


def start(address: str, **methods: Callable[..., Any]) -> courier.Server:
    server = courier.Server("learner", address=address)
    for name, fn in methods.items():
        server.bind(name, fn)
    server.start()
    _servers.append(server)
    return server


@pytest.fixture(autouse=True)
def servers_are_stopped() -> Iterator[None]:
    yield
    while _servers:
        _servers.pop().stop(0.2)


@contextlib.contextmanager
def channel_to(server: courier.Server) -> Iterator[grpc.Channel]:
    (target,) = [a for a in server.addresses if a.startswith("grpc")]
    with grpc.insecure_channel(target.partition(":")[2]) as channel:
        yield channel


def call_json(
    channel: grpc.Channel,
    method: str,
    argument: Any,
    service: str = "launchpad.learner",
    **options: Any,
) -> Any:
    """As grpcurl does: knows nothing but what reflection says."""
    types = describe(channel, service).services_by_name[service.rpartition(".")[2]]
    described = types.methods_by_name[method]
    request = message_factory.GetMessageClass(described.input_type)()
    response_type = message_factory.GetMessageClass(described.output_type)
    invoke = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response_type.FromString,
    )
    return MessageToDict(invoke(ParseDict(argument, request), timeout=DEADLINE_S, **options))


def describe(channel: grpc.Channel, service: str) -> Any:
    """The file of a service, from what reflection says of it."""
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
    (answer,) = reflect(channel, request)
    pool = descriptor_pool.DescriptorPool()
    for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    return pool.FindFileContainingSymbol(service)


def reflect(channel: grpc.Channel, request: Any) -> list[Any]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return list(stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE_S))


def status_of(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


# Addresses.


def test_a_server_is_also_at_a_grpc_address(unix_address: str) -> None:
    server = courier.Server("learner", address=unix_address, also_at=[ANY_PORT])
    server.bind("add", lambda a, b: a + b)
    server.start()
    _servers.append(server)

    assert server.address == unix_address
    assert server.addresses[0] == unix_address
    for address in server.addresses:
        with courier.Client(address) as client:
            assert client.add(1, 2) == 3


def test_two_servers_never_share_a_port() -> None:
    server = start(ANY_PORT)

    second = courier.Server("second", address=server.address)
    with pytest.raises(OSError, match="another server"):
        second.start()


def test_a_server_whose_second_address_is_taken_does_not_start_at_the_first(
    unix_address: str,
) -> None:
    taken = start(ANY_PORT).address
    server = courier.Server(address=unix_address, also_at=[taken])

    with pytest.raises(OSError, match="another server"):
        server.start()

    start(unix_address, ping=lambda: 1)


def test_a_server_that_could_not_start_keeps_no_grpc_port() -> None:
    server = start(ANY_PORT)
    free = server.address
    server.stop()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OSError, match="another server"):
            courier.Server(address=free, also_at=[taken]).start()

    start(free, ping=lambda: 1)


@pytest.mark.parametrize("also_at", [["grpc:nowhere"], ["grpc::1:2"]])
def test_a_malformed_address_is_refused_where_it_is_written(also_at: Any) -> None:
    with pytest.raises(ValueError, match="grpc:HOST:PORT"):
        courier.Server(also_at=also_at)


def test_addresses_of_all_kinds_stand_in_the_order_given(unix_address: str) -> None:
    server = courier.Server(address=ANY_PORT, also_at=[unix_address, ANY_PORT, "tcp:127.0.0.1:0"])
    server.bind("ping", lambda: "here")
    server.start()
    _servers.append(server)

    kinds = [address.partition(":")[0] for address in server.addresses]

    assert kinds == ["grpc", "unix", "grpc", "tcp"]
    for address in server.addresses:
        with courier.Client(address) as client:
            assert client.ping() == "here"


def test_plaintext_beyond_loopback_has_to_be_asked_for() -> None:
    with pytest.raises(PermissionError, match=r"grpc\+plaintext:0\.0\.0\.0:0"):
        courier.Server(address="grpc:0.0.0.0:0").start()

    server = start("grpc+plaintext:0.0.0.0:0", ping=lambda: "here")
    with courier.Client(server.address) as client:
        assert client.ping() == "here"


def test_a_client_does_not_go_beyond_loopback_in_the_clear(connect: Connect) -> None:
    with pytest.raises(PermissionError, match="beyond loopback"):
        connect("grpc:192.0.2.1:7077").ping()


def test_grpc_is_imported_only_for_its_addresses() -> None:
    source = "import sys; from launchpad import courier\nwith courier.Server() as s: pass"
    source = source.replace(
        "with courier.Server() as s: pass", "s = courier.Server(); s.start(); s.stop()"
    )
    source += "\nassert 'grpc' not in sys.modules"

    subprocess.run([sys.executable, "-c", source], check=True, timeout=DEADLINE_S)


def test_without_grpc_the_error_says_what_to_install() -> None:
    source = (
        "import sys; sys.modules['grpc'] = None; from launchpad import courier\n"
        f"try: courier.Client({ANY_PORT!r})\n"
        "except ImportError as error: print(error)"
    )

    said = subprocess.run(
        [sys.executable, "-c", source], check=True, timeout=DEADLINE_S, capture_output=True
    )

    assert b"pip install 'launchpad-graph[grpc]'" in said.stdout


# Health.


def test_health_follows_the_server() -> None:
    server = start(ANY_PORT)
    with channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def check(service: str) -> Any:
            return stub.Check(health_pb2.HealthCheckRequest(service=service)).status

        assert [check(""), check("launchpad.learner")] == [SERVING, SERVING]
        server.set_is_healthy(False)
        assert [check(""), check("launchpad.learner")] == [NOT_SERVING, NOT_SERVING]
        server.set_is_healthy(True)
        assert check("") == SERVING
        server.drain()
        assert check("") == NOT_SERVING
        code, _ = status_of(lambda: check("another"))
        assert code is grpc.StatusCode.NOT_FOUND


def test_who_watches_health_hears_of_every_change() -> None:
    server = start(ANY_PORT)
    with channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        received = stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)

        assert next(received).status == SERVING
        server.set_is_healthy(False)
        assert next(received).status == NOT_SERVING
        server.set_is_healthy(True)
        assert next(received).status == SERVING
        server.stop()
        assert list(received) == []


def test_health_and_reflection_need_no_token_and_calls_do(
    keys: Callable[[str, bytes], None],
) -> None:
    keys("grpc:", TOKEN)
    server = start(ANY_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        code, text = status_of(lambda: call_json(channel, "add", [1, 2]))
        metadata = (("authorization", f"Bearer {TOKEN.hex()}"),)

        assert health.status == SERVING
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "authorization: Bearer" in text
        assert call_json(channel, "add", [1, 2], metadata=metadata) == 3


# Reflection and JSON.


def test_reflection_lists_services_and_the_methods_that_are_bound_now() -> None:
    server = start(ANY_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        (answer,) = reflect(channel, reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {service.name for service in answer.list_services_response.service}
        before = describe(channel, "launchpad.learner").services_by_name["learner"].methods
        server.bind("later", lambda: 1)
        after = describe(channel, "launchpad.learner").services_by_name["learner"].methods

    assert {"launchpad.learner", "grpc.health.v1.Health"} <= names
    assert [method.name for method in before] == ["add"]
    assert [method.name for method in after] == ["add", "later"]


def test_reflection_speaks_the_newer_version_too() -> None:
    server = start(ANY_PORT)
    with channel_to(server) as channel:
        ask = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = ask(iter([request]), timeout=DEADLINE_S)

    assert len(answer.list_services_response.service) >= 3


def test_json_lists_are_positional_and_objects_are_keyword_arguments() -> None:
    server = start(OPEN_PORT, show=lambda *args, **kwargs: [list(args), kwargs])
    with channel_to(server) as channel:
        assert call_json(channel, "show", [1, "two", None]) == [[1, "two", None], {}]
        assert call_json(channel, "show", {"a": [True, 2.5]}) == [[], {"a": [True, 2.5]}]
        assert call_json(channel, "show", "one") == [["one"], {}]
        assert call_json(channel, "show", [[1, 2]]) == [[[1, 2]], {}]


def test_whole_numbers_arrive_as_ints() -> None:
    server = start(OPEN_PORT, kind=lambda x: type(x).__name__)
    with channel_to(server) as channel:
        assert call_json(channel, "kind", [3]) == "int"
        assert call_json(channel, "kind", [3.5]) == "float"


def test_arrays_come_back_as_lists() -> None:
    server = start(
        OPEN_PORT, zeros=lambda n: {"grid": np.zeros((n, 2), np.float32), "n": np.int64(n)}
    )
    with channel_to(server) as channel:
        assert call_json(channel, "zeros", [2]) == {"grid": [[0, 0], [0, 0]], "n": 2}


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ({"loss": [1.0, float("nan")]}, r"the result\['loss'\]\[1\] is nan"),
        (b"bytes", "the result is a bytes"),
        (2**60, "cannot be exactly"),
        ({1: 2}, "has the key 1"),
    ],
)
def test_what_json_cannot_express_is_an_error_that_says_where(result: Any, where: str) -> None:
    server = start(OPEN_PORT, get=lambda: result)
    with channel_to(server) as channel:
        code, text = status_of(lambda: call_json(channel, "get", []))

    assert code is grpc.StatusCode.INTERNAL
    with pytest.raises(json_service.NotJson, match=where):
        json_service.to_value(result)
    assert "the method has run, but the result" in text


def test_an_exception_of_a_method_is_unknown_with_its_type_and_text() -> None:
    def fail() -> None:
        raise KeyError("no such key")

    server = start(OPEN_PORT, fail=fail)
    with channel_to(server) as channel, pytest.raises(grpc.RpcError) as caught:
        call_json(channel, "fail", [])

    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert "KeyError: KeyError('no such key')" in caught.value.details()
    trailing = dict(caught.value.trailing_metadata())
    assert b"in fail" in trailing["traceback-bin"]


def test_a_large_exception_arrives_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 200_000)

    server = start(OPEN_PORT, fail=fail)
    with channel_to(server) as channel:
        code, text = status_of(lambda: call_json(channel, "fail", []))

    assert code is grpc.StatusCode.UNKNOWN
    assert text.startswith("ValueError: ValueError('xxx")


def test_an_unknown_method_is_unimplemented_and_lists_those_there_are() -> None:
    server = start(OPEN_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        invoke = channel.unary_unary("/launchpad.learner/sub")
        code, text = status_of(lambda: invoke(b""))
        private, _ = status_of(lambda: channel.unary_unary("/launchpad.learner/__call__")(b""))

    assert code is private is grpc.StatusCode.UNIMPLEMENTED
    assert "It serves: add" in text


def test_a_foreign_deadline_is_inherited_by_calls_made_while_serving(gate: threading.Event) -> None:
    inner = start(OPEN_PORT, hang=gate.wait)
    seen: list[BaseException] = []

    def ask() -> None:
        with courier.Client(inner.address) as client:
            try:
                client.hang()
            except courier.DeadlineExceeded as error:
                seen.append(error)
                gate.set()

    outer = start(OPEN_PORT, ask=ask)
    with channel_to(outer) as channel:
        invoke = channel.unary_unary("/launchpad.learner/ask")
        code, _ = status_of(lambda: invoke(Value(list_value={}).SerializeToString(), timeout=0.3))
        assert gate.wait(DEADLINE_S)

    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(seen) == 1


def test_a_draining_server_is_unavailable_to_json_callers() -> None:
    server = start(OPEN_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        server.drain()
        code, text = status_of(lambda: call_json(channel, "add", [1, 2]))

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "has not run" in text


def test_json_calls_are_counted_under_the_callers_host() -> None:
    server = start(OPEN_PORT, add=lambda a, b: a + b)
    with channel_to(server) as channel:
        call_json(channel, "add", [1, 2])

    stats = server.stats()
    assert stats.methods["add"].calls == 1
    assert any(client.startswith("grpc ipv4") for client in stats.edges)


# Courier's own client.


def test_both_sides_count_every_call_and_every_error(connect: Connect) -> None:
    def fail() -> None:
        raise LookupError("gone")

    server = start(ANY_PORT, double=lambda x: 2 * x, fail=fail)
    client = connect(server.address)

    for call in (client.double, lambda x: client.futures.double(x).result(DEADLINE_S)):
        call(1)
    for call in (client.fail, lambda: client.futures.fail().result(DEADLINE_S)):
        with pytest.raises(LookupError):
            call()

    until(lambda: client.stats().methods["fail"].in_flight == 0)  # it is counted a moment later
    for stats in (client.stats(), server.stats()):
        worked, failed = stats.methods["double"], stats.methods["fail"]
        assert (worked.calls, worked.errors, worked.in_flight) == (2, 0, 0)
        assert (failed.calls, failed.errors, failed.in_flight) == (2, 2, 0)


def test_spans_of_both_sides_are_linked(connect: Connect) -> None:
    server = start(ANY_PORT, double=lambda x: 2 * x)
    client = connect(server.address)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    courier.trace(provider)
    try:
        client.double(1)
        client.futures.double(1).result(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while len(spans := exporter.get_finished_spans()) < 4:  # a future's ends behind it
            assert time.monotonic() < deadline
    finally:
        courier.stop_tracing()
        provider.shutdown()

    called = [span.context for span in spans if span.kind is SpanKind.CLIENT]
    parents = [span.parent for span in spans if span.kind is SpanKind.SERVER]
    assert [each.span_id for each in parents if each] == [each.span_id for each in called if each]
    assert len(called) == len(parents) == 2


def test_a_courier_client_gets_what_it_gets_elsewhere(connect: Connect) -> None:
    def fail() -> None:
        raise LookupError("gone")

    server = start(ANY_PORT, echo=lambda x: x, fail=fail)
    client = connect(server.address)

    array = np.arange(1 << 20, dtype=np.float32)
    got = client.echo({"a": array, "b": (1, {2})})
    got["a"][0] = 7  # private and writable
    assert np.array_equal(got["a"][1:], array[1:])
    assert got["b"] == (1, {2})
    with pytest.raises(LookupError, match="gone") as caught:
        client.fail()
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(courier.MethodNotFound, match="echo"):
        client.ecko(1)
    assert courier.list_methods(client) == ["echo", "fail"]
    assert client.with_options(compress=True).echo("x" * 200_000) == "x" * 200_000


def test_ten_thousand_outstanding_futures_all_arrive(connect: Connect) -> None:
    server = start(ANY_PORT, double=lambda x: 2 * x)
    client = connect(server.address)

    futures = [client.futures.double(i) for i in range(10_000)]

    assert [future.result(60) for future in futures] == [2 * i for i in range(10_000)]


def test_methods_that_wait_for_each_other_find_threads(connect: Connect) -> None:
    barrier = threading.Barrier(50)
    server = start(ANY_PORT, meet=lambda: barrier.wait(DEADLINE_S))
    client = connect(server.address)

    futures = [client.futures.meet() for _ in range(50)]

    assert sorted(future.result(DEADLINE_S) for future in futures) == list(range(50))


def test_coroutines_and_batched_methods_hold_no_thread(connect: Connect) -> None:
    import asyncio

    released: list[asyncio.Event] = []

    async def hold() -> int:
        event = asyncio.Event()
        released.append(event)
        await event.wait()
        return threading.active_count()

    async def release() -> None:
        for event in released:
            event.set()

    server = start(ANY_PORT, hold=hold, release=release, n=lambda: len(released))
    client = connect(server.address)
    futures = [client.futures.hold() for _ in range(200)]
    until(lambda: client.n() >= 200)
    client.release()

    assert max(future.result(DEADLINE_S) for future in futures) < 60


def test_a_call_made_before_the_server_is_up_waits_for_it(connect: Connect) -> None:
    address = start(ANY_PORT).address
    _servers.pop().stop()
    client = connect(address)
    future = client.futures.ping()
    with pytest.raises(courier.NotSent):
        client.with_options(wait_for_ready=False).ping()

    start(address, ping=lambda: "up")

    assert future.result(DEADLINE_S) == "up"


def test_a_deadline_ends_a_call_and_travels_with_it(
    connect: Connect, gate: threading.Event
) -> None:
    server = start(ANY_PORT, hang=gate.wait)
    client = connect(server.address, call_timeout=0.1)

    with pytest.raises(courier.DeadlineExceeded, match=r"within 0\.1 s"):
        client.hang()


def test_a_cancelled_future_is_not_begun(connect: Connect, gate: threading.Event) -> None:
    ran: list[int] = []
    server = courier.Server("learner", address=ANY_PORT, thread_pool_size=1)
    server.bind("hang", gate.wait)
    server.bind("note", ran.append)
    server.start()
    _servers.append(server)
    client = connect(server.address)
    first = client.futures.hang()
    futures = [client.futures.note(i) for i in range(3)]
    cancelled = [future.cancel() for future in futures]
    gate.set()
    first.result(DEADLINE_S)
    client.futures.note(99).result(DEADLINE_S)

    assert ran.count(99) == 1
    assert all(
        i not in ran for i, was in enumerate(cancelled) if was and not futures[i].cancelled()
    )


@pytest.mark.parametrize("token", [b"", b"another token 16"])
def test_a_wrong_token_is_refused_before_anything_is_unpickled(token: bytes) -> None:
    canary: list[int] = []

    class Canary:
        def __reduce__(self) -> Any:
            return canary.append, (1,)

    server = courier.Server("learner", address=ANY_PORT, token=TOKEN)
    server.bind("take", lambda x: None)
    server.start()
    _servers.append(server)

    with courier.Client(server.address, token=token) as client, pytest.raises(courier.Refused):
        client.take(1)
    body = pickle.dumps(((Canary(),), {}))
    frame = common.encode_frame(1, b"take", body, [])
    with channel_to(server) as channel:
        call = channel.unary_unary(common.CALL)
        for _ in range(100):
            code, _ = status_of(lambda: call(frame, metadata=((common.TOKEN, token),)))
            assert code is grpc.StatusCode.UNAUTHENTICATED
    assert canary == []


def test_the_body_of_a_refused_call_is_not_read() -> None:
    server = courier.Server("learner", address=ANY_PORT, token=TOKEN)
    server.start()
    _servers.append(server)
    sent: list[int] = []

    def body() -> Iterator[bytes]:
        for i in itertools.count():
            sent.append(i)
            yield bytes(1 << 20)

    with channel_to(server) as channel:
        call = channel.stream_unary(common.CALL)
        code, _ = status_of(lambda: call(body()))

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert len(sent) < 64


def test_a_call_meant_for_another_incarnation_does_not_run() -> None:
    ran: list[int] = []
    server = start(OPEN_PORT, note=ran.append)
    frame = common.encode_frame(1, b"note", pickle.dumps(((1,), {})), [])
    with channel_to(server) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(common.CALL)(frame, metadata=((common.INCARNATION, b"x" * 16),))

    assert (common.NOT_RUN, "incarnation") in caught.value.trailing_metadata()
    assert ran == []


def test_a_stream_is_an_error_that_says_so(connect: Connect) -> None:
    def count() -> Iterator[int]:
        yield 1

    server = start(OPEN_PORT, count=count, ping=lambda: 1)
    client = connect(server.address)

    with pytest.raises((courier.RemoteError, TypeError), match="gRPC carries no streams"):
        client.count()
    with channel_to(server) as channel:
        code, text = status_of(lambda: call_json(channel, "count", []))
    assert code is grpc.StatusCode.UNKNOWN
    assert "gRPC carries no streams" in text
    assert client.ping() == 1


def test_too_large_arguments_are_an_error_of_the_caller(connect: Connect) -> None:
    server = courier.Server("learner", address=ANY_PORT, max_bytes=1 << 20)
    server.bind("echo", lambda x: x)
    server.start()
    _servers.append(server)
    client = connect(server.address)

    with pytest.raises(courier.MessageTooLarge):
        client.echo(bytes(2 << 20))
    assert client.echo(1) == 1
    small = connect(server.address, max_bytes=1000)
    with pytest.raises(courier.MessageTooLarge, match="result"):
        small.echo(bytes(2000))


def test_a_killed_server_leaves_no_call_without_an_outcome(
    connect: Connect, spawn_server: Callable[[str], subprocess.Popen[str]]
) -> None:
    address = free_address()
    process = spawn_server(address)
    client = connect(address)
    futures = [client.futures.hang() for _ in range(100)]
    until(lambda: client.n_hanging() >= 100)

    process.kill()

    for future in futures:
        with pytest.raises(courier.OutcomeUnknown, match="victim"):
            future.result(DEADLINE_S)


def test_the_next_call_after_a_restart_is_answered(
    connect: Connect, spawn_server: Callable[[str], subprocess.Popen[str]]
) -> None:
    address = free_address()
    process = spawn_server(address)
    client = connect(address)
    restarts: list[int] = []
    first = client.pid()
    courier.on_restart(client, lambda: restarts.append(1))
    process.kill()
    process.wait()
    waiting = client.futures.pid()
    spawn_server(address)

    try:
        second = waiting.result(DEADLINE_S)
    except courier.OutcomeUnknown:  # it was sent before anybody here knew of the death
        second = client.pid()
    assert second != first
    assert restarts == [1]


def test_a_call_that_meets_the_next_server_before_its_client_knows_is_answered(
    connect: Connect, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server has made a token of its own, and gRPC connects to it by itself."""
    address = free_address()
    first = serve(address, who=lambda: "first")
    client = connect(address)
    with monkeypatch.context() as it_knows_of_nothing:
        it_knows_of_nothing.setattr(GrpcConnection, "_on_lost", lambda self, open_call: None)
        assert client.who() == "first"
    first.stop()
    serve(address, who=lambda: "second")

    assert client.futures.who().result(DEADLINE_S) == "second"


def test_idempotent_calls_survive_the_death_of_their_server(
    connect: Connect, spawn_server: Callable[[str], subprocess.Popen[str]]
) -> None:
    address = free_address()
    process = spawn_server(address)
    client = connect(address).with_options(idempotent=True)
    future = client.futures.hang()
    until(client.n_hanging)
    process.kill()
    process.wait()
    spawn_server(address)

    while client.n_hanging() < 1:  # it has been called again
        time.sleep(0.01)
    assert not future.done()


def test_a_failure_check_ends_the_wait_for_a_server(connect: Connect) -> None:
    address = start(ANY_PORT).address
    _servers.pop().stop()
    failures = iter([None, None])
    failed = courier.WorkerFailed("it has failed")
    client = connect(address, failure_check=lambda: next(failures, failed))

    with pytest.raises(courier.WorkerFailed):
        client.ping()


def test_closing_a_client_ends_its_futures(connect: Connect, gate: threading.Event) -> None:
    server = start(ANY_PORT, hang=gate.wait)
    client = connect(server.address)
    future = client.futures.hang()

    courier.close(client)

    with pytest.raises(courier.CourierError):
        future.result(DEADLINE_S)


def test_stop_waits_for_the_calls_that_run(connect: Connect, gate: threading.Event) -> None:
    begun = threading.Event()

    def work() -> str:
        begun.set()
        gate.wait()
        return "done"

    server = start(ANY_PORT, work=work)
    client = connect(server.address)
    future = client.futures.work()
    assert begun.wait(DEADLINE_S)
    threading.Timer(0.1, gate.set).start()
    server.stop(DEADLINE_S)

    assert future.result(DEADLINE_S) == "done"


def test_a_method_may_stop_its_own_server(connect: Connect) -> None:
    server = start(ANY_PORT)
    server.bind("stop", lambda: server.stop(5.0) or "stopped")  # type: ignore[func-returns-value]

    assert connect(server.address).stop() == "stopped"
    assert not server.has_started


def test_credentials_make_it_tls_and_others_are_refused() -> None:
    ours, theirs = make_credentials(), make_credentials()
    keyring.add("grpc:127.0.0.1:", TOKEN, ours)
    try:
        server = start(ANY_PORT, ping=lambda: "safe")
        with courier.Client(server.address) as client:
            assert client.ping() == "safe"
        keyring.add("grpc:127.0.0.1:", TOKEN, theirs)
        with courier.Client(server.address) as client, pytest.raises(courier.Refused):
            client.ping()
        with channel_to(server) as channel:
            code, _ = status_of(
                lambda: health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            )
            assert code is grpc.StatusCode.UNAVAILABLE
    finally:
        keyring.remove("grpc:127.0.0.1:")


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
    done = subprocess.run(
        [sys.executable, "-c", FORKED], check=True, timeout=DEADLINE_S, capture_output=True
    )

    assert b"was forked from one" in done.stdout
    assert done.stdout.endswith(b"alive\n")


class Learner:
    """A node that says where it is."""

    def set_courier_server(self, server: courier.Server) -> None:
        self._server = server

    def where(self) -> list[str]:
        return self._server.addresses

    def add(self, a: int, b: int) -> int:
        return a + b


class Caller:
    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def run(self) -> None:
        (target,) = [a for a in self._learner.where() if a.startswith("grpc")]
        with grpc.insecure_channel(target.partition(":")[2]) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == SERVING
        lp.stop()


def test_a_node_of_a_program_is_also_at_a_grpc_address() -> None:
    program = lp.Program("with grpc")
    node = lp.CourierNode(Learner, courier_kwargs={"also_at": [ANY_PORT]})
    learner = program.add_node(node, label="learner")
    program.add_node(lp.PyClassNode(Caller, learner), label="caller")

    lp.launch(program, launch_type="local_mp").wait()


def free_address() -> str:
    server = start(ANY_PORT)
    _servers.pop().stop()
    return server.address


# --- rings -----------------------------------------------------------------------------------------


def test_f30_a_cycle_through_a_server_that_is_reached_by_grpc_is_named(
    unix_address: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_server, "DEADLOCK_AFTER_S", 0.5)
    said, release = threading.Event(), threading.Event()
    texts: list[str] = []
    monkeypatch.setattr(call_deadlock, "warn", lambda text: (texts.append(text), said.set()))
    depth: list[int] = []

    def f() -> None:
        depth.append(1)
        if len(depth) > 1:
            release.wait(20)  # as if a lock were held, or all threads were taken
        else:
            connect(b.address).g()

    b = start(ANY_PORT, g=lambda: connect(unix_address).f())
    start(unix_address, f=f)
    caller = threading.Thread(target=connect(unix_address).f)
    caller.start()
    try:
        assert said.wait(15)
    finally:
        release.set()
        caller.join(10)

    assert "learner.f → learner.g → learner.f" in texts[0] or (
        "learner.g → learner.f → learner.g" in texts[0]
    )
