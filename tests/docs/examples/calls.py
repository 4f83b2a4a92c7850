"""Examples of calls: clients, servers, many clients as one; and of what can go wrong with calls."""

from __future__ import annotations

import secrets
import socket
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from tests.docs.examples.programs import Learner
from tests.docs.examples.runner import DEADLINE_S, Example, example_of

CLASSES = ("Table", "Learner")


class Table:
    """What several clients are clients of: rows by key, values by number."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.values = np.zeros(500_000)  # half of them

    def put(self, key: Any, value: Any) -> None:
        self.rows[key] = value

    def get(self, key: Any) -> Any:
        return [self.rows.get(k) for k in key] if isinstance(key, list) else self.rows.get(key)

    def load(self, name: Any) -> str:
        return str(name)

    def step(self, *batch: Any, **options: Any) -> int:
        return len(batch)

    def act(self, observation: float) -> float:
        return -observation

    def push(self, *args: Any, **options: Any) -> None:
        return None

    def pull(self, keys: Any) -> Any:
        return self.values[keys]


def owner_of_clients(example: Example) -> types.SimpleNamespace:
    """The object whose method an example is in: it has several clients."""
    names = ("_workers", "_shards", "_replicas", "_tables")
    return types.SimpleNamespace(**dict.fromkeys(names, example.clients(Table)))


@example_of("broadcast", "scatter")
def method_calls_all(example: Example) -> None:
    given = {"np": np, "compute": lambda _: np.zeros(10)}

    with lp.testing.worker("driver") as me:
        example.run(me=me, **given)["run"](owner_of_clients(example))


@example_of("round_robin", "shard_by", "sharded")
def method_calls_some(example: Example) -> None:
    keys, gradient = np.array([0, 500_000]), np.ones(2)

    example.run(
        self=owner_of_clients(example), observations=[0.5, 1.5], keys=keys, gradient=gradient
    )


@example_of("HashPartition")
def users_are_in_several_tables(example: Example) -> None:
    example.run(tables=example.clients(Table))


@example_of("RangePartition")
def shard_knows_its_range(example: Example) -> None:
    with lp.testing.worker("shard", rank=1, of=4) as me:
        assert len(example.run(me=me, np=np)["weights"]) == 250_000


@example_of("parts")
def batch_is_cut_in_two(example: Example) -> None:
    example.run(workers=example.clients(Table), batch=list(range(64)))


@example_of("keys")
def keys_are_the_third_argument(example: Example) -> None:
    params = lp.sharded(example.clients(Table), lp.RangePartition(1_000_000))

    example.run(
        params=params, worker="worker-0", clock=7, rows=np.array([1, 500_001]), gradient=np.ones(2)
    )


# --- clients -------------------------------------------------------------------------------------


def learner_and_batch(example: Example) -> dict[str, Any]:
    learner = example.client(Learner)
    assert learner.step() == 1.0
    return {"learner": learner, "batch": [0.5], "batches": [[0.5], [1.5]]}


@example_of("courier.close", "courier.health", "courier.list_methods", "courier.server_stats")
@example_of("courier.stats", "courier.MethodNotFound")
def learner_is_called(example: Example) -> None:
    example.run(**learner_and_batch(example))


@example_of("courier.stop_tracing")
def calls_are_spans(example: Example) -> None:
    pytest.importorskip("opentelemetry.sdk")

    example.run(**learner_and_batch(example))


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
            courier=lp.courier,
            TracerProvider=TracerProvider,
            Resource=Resource,
            BatchSpanProcessor=SimpleSpanProcessor,
            OTLPSpanExporter=lambda: spans,
        )

    learner_and_batch(example)

    assert spans.get_finished_spans()


@example_of("submit", "with_options")
def function_is_given_a_client(example: Example) -> None:
    names = example.run(Learner=Learner, Batch=list, Row=list, Table=Table)

    if "train" in names:
        assert names["train"](example.client(Learner), [[0.5], [1.5]]) == 2.0
    else:
        assert names["look_up"](example.client(Table)) is None


def served_at(example: Example, address: str, obj: Any, **options: Any) -> lp.courier.Server:
    """A server of this object, until the example ends."""
    server = lp.courier.Server("server", address=address, **options)
    server.bind_object(obj)
    server.start()
    example.stack.callback(server.stop)
    return server


def moved(example: Example) -> None:
    """Sockets of the example are in the folder of the test."""
    example.code = example.code.replace("/run/user/1000", str(example.folder))


@example_of("CourierClient")
def client_of_an_address(example: Example) -> None:
    moved(example)
    served_at(example, f"unix:{example.folder}/learner.sock", Learner())

    names = example.run(Client=lp.courier.Client, batch=[0.5], batches=[[0.5], [1.5]])

    assert names["losses"] == [1.0, 1.0]


@example_of("courier", "courier.Server")
def server_at_an_address(example: Example) -> None:
    moved(example)

    names = example.run(counter=Counter(), Server=lp.courier.Server, table={})

    names["server"].stop()
    if "client" in names:
        lp.courier.close(names["client"])


class Counter:
    def add(self, n: int) -> int:
        return n


@example_of("courier.Credentials", "courier.keyring")
def secrets_are_on_the_keyring(example: Example) -> None:
    credentials, keyring = lp.courier.make_credentials(), lp.courier.keyring
    for prefix in ("tcp:", "unix:/run/user/1000/launchpad/"):
        example.stack.callback(keyring.remove, prefix)

    example.run(token=secrets.token_bytes(16), credentials=credentials)

    assert keyring.find_credentials("tcp:localhost:1234") is not None


@example_of("courier.incarnation", "courier.on_restart")
def table_is_started_again(example: Example) -> None:
    table = example.client(Table)

    example.run(table=table, courier=lp.courier, snapshot="checkpoint-7")


# --- classes that are served ---------------------------------------------------------------------


@example_of("idempotent", "priority", "serves")
def methods_are_declared(example: Example) -> None:
    served = next(value for name, value in example.run().items() if name in CLASSES)
    served.rows, served.steps = {}, 3

    client = example.client(served)

    assert isinstance(lp.courier.list_methods(client), list)


@example_of("batched_handler")
def calls_are_answered_together(example: Example) -> None:
    definition, _, call = example.code.partition("\n\n")
    example.code = definition
    served = example.run()["Policy"]
    served._network = staticmethod(lambda observations: np.zeros((len(observations), 18)))
    policy = example.client(served)

    example.code = call
    names = example.run(policy=policy, observation=np.zeros((84, 84, 4)))

    assert names["action_values"].shape == (18,)


# --- what can go wrong ---------------------------------------------------------------------------


@example_of("courier.NotSent")
def learner_is_not_up(example: Example) -> None:
    learner: Any = lp.courier.Client(f"unix:{example.folder}/learner.sock")

    example.run(learner=learner, batch=[0.5])


@example_of("courier.CourierError", "courier.WorkerFailed")
def learner_is_not_there(example: Example) -> None:
    failure = lp.courier.WorkerFailed("it has failed", server="learner-0")
    learner: Any = lp.courier.Client(
        f"unix:{example.folder}/learner.sock", failure_check=lambda: failure
    )

    example.run(learner=learner, batch=[0.5], courier=lp.courier)

    lp.courier.close(learner)


@example_of("courier.DeadlineExceeded")
def learner_is_slow(example: Example) -> None:
    class Slow:
        def step(self, batch: object) -> None:
            lp.wait_for_stop(DEADLINE_S)

    example.run(learner=example.client(Slow), batch=[0.5])


@example_of("courier.MessageTooLarge")
def batch_is_large(example: Example) -> None:
    server = served_at(example, f"unix:{example.folder}/learner.sock", Learner(), max_bytes=10_000)
    learner: Any = lp.courier.Client(server.address)

    example.run(learner=learner, batch=np.zeros(10_000))

    lp.courier.close(learner)


@example_of("courier.OutcomeUnknown", "testing.Faults")
def network_loses_answers(example: Example) -> None:
    class Account:
        def __init__(self) -> None:
            self.amount = 0

        def deposit(self, amount: int) -> None:
            self.amount += amount

        add = deposit

        def balance(self) -> int:
            return self.amount

    server = served_at(example, f"unix:{example.folder}/account.sock", Account())
    account: Any = lp.courier.Client(server.address)
    if "Faults" in example.code:
        example.run(client=account, testing=lp.testing, courier=lp.courier, pytest=pytest)
        lp.courier.close(account)
        return
    faults = example.stack.enter_context(lp.testing.Faults(seed=1, drop_response=1.0))
    deposit = account.deposit

    class Once:
        balance = account.balance

        def deposit(self, amount: int) -> None:
            try:
                deposit(amount)
            finally:
                faults.__exit__(None, None, None)

    example.run(account=Once())
    lp.courier.close(account)


@example_of("courier.ProtocolError")
def peer_is_no_courier_server(example: Example) -> None:
    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=answer_with_a_page, args=(listener,))
        thread.start()
        client: Any = lp.courier.Client(f"tcp+plaintext:localhost:{listener.getsockname()[1]}")
        example.run(client=client)
        lp.courier.close(client)
        thread.join()


def answer_with_a_page(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + bytes(100))


@example_of("courier.Refused")
def token_is_wrong(example: Example) -> None:
    server = served_at(example, "tcp+plaintext:localhost:0", Learner())

    example.run(address=server.address)


class Unknown(Exception):
    """Not to be pickled."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@example_of("courier.RemoteError", "courier.RemoteTraceback")
def method_raises(example: Example) -> None:
    kind = ValueError if "ValueError" in example.code else Unknown

    class Raising:
        def step(self, batch: object) -> None:
            raise kind("no data")

    example.run(learner=example.client(Raising), batch=[0.5])


@example_of("courier.StreamBroken")
def server_ends_in_a_stream(example: Example) -> None:
    is_over = threading.Event()

    class Rows:
        def rows(self) -> Iterator[str]:
            yield "the first"
            threading.Thread(target=server.stop, args=(0.0,)).start()
            is_over.wait(DEADLINE_S)

    server = served_at(example, f"unix:{example.folder}/table.sock", Rows())
    table: Any = lp.courier.Client(server.address)

    assert example.run(table=table)["rows"] == ["the first"]
    is_over.set()
    lp.courier.close(table)
