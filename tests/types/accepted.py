"""What type checkers accept, and which types they find: nothing in this file is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import ExitStack
from typing import Any, Protocol, assert_type

import launchpad as lp
from launchpad import courier
from tests.types.learner import Learner

# --- the type is given ---------------------------------------------------------------------------


def calls(learner: lp.CourierClient[Learner]) -> None:
    assert_type(learner.step(1, weight=2.0), str)
    assert_type(learner.version(), int)
    assert_type(learner(b"question"), bytes)
    for number in learner.rollouts(3):
        assert_type(number, int)
    for number in learner.numbers():
        assert_type(number, int)


def futures(learner: lp.CourierClient[Learner]) -> None:
    assert_type(lp.submit(learner.step, 1, weight=2.0), Future[str])
    assert_type(lp.submit(learner.version), Future[int])
    assert_type(lp.submit(learner, b"question"), Future[bytes])
    assert_type(lp.submit(learner.predict, 1.0).result(), float)  # a coroutine, awaited over there


def groups(
    learners: Sequence[lp.CourierClient[Learner]], by_name: Mapping[str, lp.CourierClient[Learner]]
) -> list[str]:
    assert_type(by_name["a"].step(1), str)
    pending = [lp.submit(learner.step, 1) for learner in learners]
    return [future.result() for future in as_completed(pending)]


class Steps(Protocol):
    """The part of a Learner that an actor uses."""

    def step(self, batch: int) -> str: ...


def by_protocol(learner: lp.CourierClient[Steps]) -> str:
    return learner.step(1)


def stand_ins(learner: lp.CourierClient[Learner]) -> None:
    calls(Learner())  # a test may give the object itself
    by_protocol(learner)


# --- where a typed client comes from -------------------------------------------------------------


def in_a_program() -> None:
    program = lp.Program("typed")
    node = lp.CourierNode(Learner, rate=0.2)
    assert_type(node, lp.CourierNode[Learner])
    handle = program.add_node(node, label="learner")
    assert_type(handle, lp.CourierHandle[Learner])
    assert_type(handle.dereference(), Learner)
    cached = program.add_node(lp.CacherNode(handle, 1, 2), label="cacher")
    assert_type(cached, lp.CourierHandle[Learner])
    program.add_node(lp.PyNode(calls, handle), label="caller")
    program.add_node(lp.PyNode(groups, [handle, cached], by_name={"a": handle}), label="group")


def a_queue() -> None:
    node = lp.QueueNode[int](maxsize=2, producers=1)
    handle = lp.Program("typed").add_node(node, label="numbers")
    assert_type(handle, lp.QueueHandle[int])
    queue = handle.dereference()
    assert_type(queue, lp.Queue[int])
    assert_type(queue.put(1), bool)
    assert_type(queue.get(), int)
    with queue.producer() as same:
        assert_type(same, lp.Queue[int])
    for number in queue:
        assert_type(number, int)


def made_by_a_function(rate: float) -> Learner:
    return Learner(rate)


def from_a_function() -> None:
    handle = lp.Program("typed").add_node(lp.CourierNode(made_by_a_function, 0.2), label="learner")
    assert_type(handle, lp.CourierHandle[Learner])


def while_it_runs(running: lp.Running, handle: lp.CourierHandle[Learner]) -> None:
    calls(handle.dereference())
    calls(running.client("learner"))
    learner: lp.CourierClient[Learner] = running.client("learner")
    calls(learner)


def by_address(address: str) -> None:
    with courier.Client[Learner](address, call_timeout=5) as learner:
        assert_type(learner, Learner)
    with ExitStack() as stack:
        assert_type(stack.enter_context(courier.Client[Learner](address)), Learner)


def what_only_clients_have(learner: lp.CourierClient[Learner], client: lp.CourierClient) -> None:
    patient = lp.with_options(learner, timeout_s=60.0, idempotent=True)
    assert_type(patient.step(1), str)
    assert_type(lp.submit(patient.step, 1), Future[str])
    lp.with_options(client, timeout_s=60.0).futures.misspelt()
    courier.list_methods(learner)
    courier.close(learner)


# --- the type is not given: everything is allowed ------------------------------------------------


def anything(
    client: lp.CourierClient, clients: list[lp.CourierClient], other: lp.CourierClient[Any]
) -> None:
    client.misspelt(1, any="thing").more()
    clients[0].futures.misspelt("1").result()
    other.futures.misspelt("1").result()
    lp.submit(client.misspelt, 1, any="thing").result()
    calls(client)


def anything_of(handle: lp.CourierHandle, program: lp.Program) -> None:
    handle.dereference().misspelt()
    lp.CourierNode(calls, handle, courier_client_kwargs={"call_timeout": 5})


def anything_by_address(address: str, given: courier.Client[Any], bare: courier.Client) -> None:
    given.futures.misspelt("1").result()
    bare.misspelt()
    client = courier.Client(address)
    client.misspelt("1")
    with courier.Client(address) as opened:
        opened.futures.misspelt("1").result()
