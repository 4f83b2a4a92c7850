"""What type checkers reject: a line is an error if, and only if, it ends in `# rejected`.

What follows the word is in the messages of all checkers.
"""

from __future__ import annotations

from typing import Protocol

import launchpad as lp
from launchpad import courier
from tests.types.learner import Learner


def misspelt(learner: lp.CourierClient[Learner]) -> None:
    learner.stepp(1)  # rejected: "stepp"
    learner.futures.step(1)  # rejected: "futures"
    lp.submit(learner.stepp, 1)  # rejected: "stepp"
    lp.with_options(learner, timeout_s=1.0).stepp(1)  # rejected: "stepp"


def arguments(learner: lp.CourierClient[Learner]) -> None:
    learner.step("1")  # rejected: "step"
    learner.step()  # rejected: "batch"
    learner.step(1, 2.0)  # rejected: positional argument
    learner.step(1, wait=2.0)  # rejected: "wait"


def submitted(learner: lp.CourierClient[Learner]) -> None:
    lp.submit(learner.step, "1")  # rejected
    lp.submit(learner.step)  # rejected
    lp.submit(learner.step, 1, wait=2.0)  # rejected: "wait"
    lp.submit(learner.predict, "1")  # rejected
    lp.submit(learner.step(1))  # rejected


def results(learner: lp.CourierClient[Learner]) -> None:
    number: int = learner.step(1)  # rejected: "str"
    other: int = lp.submit(learner.step, 1).result()  # rejected: "str"
    print(number + other)


class Evaluates(Protocol):
    """Something that a Learner cannot do."""

    def evaluate(self) -> float: ...


def wants(client: lp.CourierClient[Evaluates]) -> None:
    client.evaluate()


def another_class(learner: lp.CourierClient[Learner]) -> None:
    wants(learner)  # rejected: "Evaluates"


def handles(program: lp.Program, handle: lp.CourierHandle[Learner]) -> None:
    handle.step(1)  # rejected: "step"
    handle.dereference().stepp(1)  # rejected: "stepp"
    program.add_node(lp.CourierNode(Learner), "a").dereference().stepp(1)  # rejected: "stepp"
    wants(handle.dereference())  # rejected: "Evaluates"
    program.add_node(Learner, label="no node")  # rejected: "add_node


def by_address(address: str) -> None:
    with courier.Client[Learner](address) as learner:
        learner.stepp(1)  # rejected: "stepp"


def names() -> None:
    print(lp.CourierCleint)  # rejected: "CourierCleint"
