"""Examples of calls: clients, servers, many clients as one; and of what can go wrong with calls."""

from __future__ import annotations

import socket
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, examples
from tests.docs.examples.stand_ins import Learner, Sums, Table


def tables(example: Example) -> list[Any]:
    return [example.client(Table), example.client(Table)]


def owner(example: Example) -> types.SimpleNamespace:
    """The object whose method an example is in: it has several clients."""
    names = ("_workers", "_shards", "_replicas", "_tables")
    return types.SimpleNamespace(**dict.fromkeys(names, tables(example)))


def params(example: Example) -> Any:
    return lp.sharded(tables(example), lp.RangePartition(1_000_000))


def learner(example: Example) -> Any:
    """A client of a learner that has made a step."""
    client = example.client(Learner)
    assert client.step() == 1.0
    return client


examples(
    {
        "round_robin shard_by sharded": lambda example: example.run(self=owner(example)),
        "HashPartition": lambda example: example.run(tables=tables(example)),
        "parts": lambda example: example.run(workers=tables(example)),
        "keys": lambda example: example.run(params=params(example), worker="worker-0"),
        "courier.close courier.health courier.list_methods courier.server_stats courier.stats"
        " courier.MethodNotFound": lambda example: example.run(learner=learner(example)),
        "courier.incarnation courier.on_restart": lambda example: example.run(
            table=example.client(Table)
        ),
    }
)


@example_of("broadcast scatter")
def method_calls_all(example: Example) -> None:
    with lp.testing.worker("driver") as me:
        example.run(me=me, compute=lambda _: np.zeros(10))["run"](owner(example))


@example_of("RangePartition")
def shard_knows_its_range(example: Example) -> None:
    with lp.testing.worker("shard", rank=1, of=4) as me:
        assert len(example.run(me=me)["weights"]) == 250_000


@example_of("courier.stop_tracing")
def calls_are_spans(example: Example) -> None:
    pytest.importorskip("opentelemetry.sdk")

    example.run(learner=learner(example))


@example_of("courier.trace")
def spans_are_exported(example: Example) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    example.stack.callback(lp.courier.stop_tracing)
    spans = InMemorySpanExporter()
    with lp.testing.worker("learner"):
        example.run(
            TracerProvider=TracerProvider,
            Resource=Resource,
            BatchSpanProcessor=SimpleSpanProcessor,
            OTLPSpanExporter=lambda: spans,
        )

    learner(example)

    assert spans.get_finished_spans()


@example_of("submit")
def function_calls_a_learner(example: Example) -> None:
    assert example.run()["train"](learner(example), [[0.5], [1.5]]) == 2.0


@example_of("with_options")
def function_asks_a_table(example: Example) -> None:
    assert example.run()["look_up"](example.client(Table)) is None


def served_at(example: Example, address: str, obj: Any, **options: Any) -> lp.courier.Server:
    """A server of this object, until the example ends."""
    server = lp.courier.Server("server", address=address, **options)
    server.bind_object(obj)
    server.start()
    example.stack.callback(server.stop)
    return server


def connected(example: Example, address: str, **options: Any) -> Any:
    """A client, until the example ends."""
    client = lp.courier.Client(address, **options)
    example.stack.callback(lp.courier.close, client)
    return client


def in_the_folder(example: Example) -> Example:
    """Its sockets are in the folder of the test."""
    return example.changed("/run/user/1000", str(example.folder))


@example_of("CourierClient")
def client_of_an_address(example: Example) -> None:
    served_at(example, f"unix:{example.folder}/learner.sock", Learner())

    assert in_the_folder(example).run()["losses"] == [1.0, 1.0]


@example_of("courier courier.Server")
def server_at_an_address(example: Example) -> None:
    names = in_the_folder(example).run(counter=Sums(), Server=lp.courier.Server, table={})

    names["server"].stop()
    if "client" in names:
        lp.courier.close(names["client"])


@example_of("courier.Credentials courier.keyring")
def secrets_are_on_the_keyring(example: Example) -> None:
    keyring = lp.courier.keyring
    for prefix in ("tcp:", "unix:/run/user/1000/launchpad/"):
        example.stack.callback(keyring.remove, prefix)

    example.run(credentials=lp.courier.make_credentials())

    assert keyring.find_credentials("tcp:localhost:1234") is not None


# --- classes that are served ---------------------------------------------------------------------


@example_of("idempotent priority serves")
def methods_are_declared(example: Example) -> None:
    served = example.run()["Learner" if "class Learner" in example.code else "Table"]
    served.rows, served.steps = {}, 3

    assert isinstance(lp.courier.list_methods(example.client(served)), list)


@example_of("batched_handler")
def calls_are_answered_together(example: Example) -> None:
    example.code, _, call = example.code.partition("\n\n")
    served = example.run()["Policy"]
    served._network = staticmethod(lambda observations: np.zeros((len(observations), 18)))
    policy = example.client(served)

    example.code = call
    names = example.run(policy=policy, observation=np.zeros((84, 84, 4)))

    assert names["action_values"].shape == (18,)


# --- what can go wrong ---------------------------------------------------------------------------


class Slow:
    def step(self, batch: object) -> None:
        lp.wait_for_stop(DEADLINE_S)


class Unpicklable(Exception):
    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Raising:
    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def step(self, batch: object) -> None:
        raise self.kind("no data")


examples(
    {
        "courier.NotSent": lambda example: example.run(
            learner=connected(example, f"unix:{example.folder}/learner.sock")
        ),
        "courier.CourierError courier.WorkerFailed": lambda example: example.run(
            learner=connected(
                example,
                f"unix:{example.folder}/learner.sock",
                failure_check=lambda: lp.courier.WorkerFailed("failed", server="learner-0"),
            )
        ),
        "courier.DeadlineExceeded": lambda example: example.run(learner=example.client(Slow)),
        "courier.RemoteError": lambda example: example.run(
            learner=example.client(Raising, Unpicklable)
        ),
        "courier.RemoteTraceback": lambda example: example.run(
            learner=example.client(Raising, ValueError)
        ),
        "courier.Refused": lambda example: example.run(
            address=served_at(example, "tcp+plaintext:localhost:0", Learner()).address
        ),
    }
)


@example_of("courier.MessageTooLarge")
def batch_is_large(example: Example) -> None:
    server = served_at(example, f"unix:{example.folder}/learner.sock", Learner(), max_bytes=10_000)

    example.run(learner=connected(example, server.address), batch=np.zeros(10_000))


@example_of("testing.Faults")
def network_loses_answers_to_a_client(example: Example) -> None:
    server = served_at(example, f"unix:{example.folder}/account.sock", Sums())

    example.run(client=connected(example, server.address))


@example_of("courier.OutcomeUnknown")
def network_loses_one_answer(example: Example) -> None:
    server = served_at(example, f"unix:{example.folder}/account.sock", Sums())
    account = connected(example, server.address)
    faults = example.stack.enter_context(lp.testing.Faults(seed=1, drop_response=1.0))

    def deposit(amount: int) -> None:
        try:
            account.deposit(amount)
        finally:
            faults.__exit__(None, None, None)

    example.run(account=types.SimpleNamespace(deposit=deposit, balance=account.balance))


@example_of("courier.ProtocolError")
def peer_is_no_courier_server(example: Example) -> None:
    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=answer_with_a_page, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        example.run(client=connected(example, f"tcp+plaintext:localhost:{port}"))
        thread.join()


def answer_with_a_page(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + bytes(100))


@example_of("courier.StreamBroken")
def server_ends_in_a_stream(example: Example) -> None:
    is_over = threading.Event()

    class Rows:
        def rows(self) -> Iterator[str]:
            yield "the first"
            threading.Thread(target=server.stop, args=(0.0,)).start()
            is_over.wait(DEADLINE_S)

    server = served_at(example, f"unix:{example.folder}/table.sock", Rows())

    assert example.run(table=connected(example, server.address))["rows"] == ["the first"]
    is_over.set()
