"""What a typed client is used with: `submit` and `with_options`."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from launchpad import courier
from tests.courier.conftest import Connect, Serve


class Learner:
    """What is served, and what a test may give in its place."""

    def step(self, batch: int, *, weight: int = 1) -> int:
        if batch < 0:
            raise ValueError(f"{batch} is negative")
        return batch * weight

    async def predict(self, observation: int) -> int:
        return observation + 1

    def __call__(self, question: str) -> str:
        return question.upper()


@pytest.fixture
def learner(address: str, serve: Serve, connect: Connect) -> courier.Client[Any]:
    serve(address).bind_object(Learner())
    return connect(address)


def test_a_submitted_call_is_answered_in_its_future(learner: courier.Client[Any]) -> None:
    futures = [courier.submit(learner.step, i, weight=10) for i in range(100)]

    assert [future.result(10) for future in futures] == [i * 10 for i in range(100)]


def test_submit_does_not_wait_for_the_answer(
    address: str, serve: Serve, connect: Connect, gate: threading.Event
) -> None:
    serve(address, wait=lambda: gate.wait(20))
    future = courier.submit(connect(address).wait)

    assert not future.done()
    gate.set()

    assert future.result(10) is True


def test_what_a_submitted_method_raises_is_in_its_future(learner: courier.Client[Any]) -> None:
    error = courier.submit(learner.step, -1).exception(10)

    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, courier.RemoteTraceback)


def test_a_method_that_is_not_there_is_named_in_the_future(learner: courier.Client[Any]) -> None:
    error = courier.submit(learner.stepp, 1).exception(10)

    assert isinstance(error, courier.MethodNotFound)


def test_a_submitted_coroutine_is_awaited_by_the_server(learner: courier.Client[Any]) -> None:
    assert courier.submit(learner.predict, 2).result(10) == 3


def test_a_client_can_be_submitted_itself(learner: courier.Client[Any]) -> None:
    assert courier.submit(learner, "why").result(10) == "WHY"


def test_a_method_with_some_of_its_arguments_can_be_submitted(
    learner: courier.Client[Any],
) -> None:
    heavy = functools.partial(learner.step, weight=5)

    assert courier.submit(heavy, 2).result(10) == 10
    assert courier.submit(heavy, 2, weight=3).result(10) == 6


def test_the_method_of_an_object_that_is_here_is_called_at_once() -> None:
    learner = Learner()

    futures = [courier.submit(learner.step, 2, weight=3), courier.submit(learner.predict, 2)]

    assert [future.result(0) for future in futures] == [6, 3]
    assert isinstance(courier.submit(learner.step, -1).exception(0), ValueError)
    assert courier.submit(learner, "why").result(0) == "WHY"
    assert courier.submit(functools.partial(learner.step, 2), weight=4).result(0) == 8


def test_submitted_calls_have_the_options_of_their_client(
    address: str, serve: Serve, connect: Connect, gate: threading.Event
) -> None:
    serve(address, wait=lambda: gate.wait(20))
    hasty = courier.with_options(connect(address), timeout_s=0.1)

    assert isinstance(courier.submit(hasty.wait).exception(10), courier.DeadlineExceeded)


def test_an_object_in_the_place_of_its_client_takes_the_options_that_there_are() -> None:
    learner = Learner()

    assert courier.with_options(learner, timeout_s=0.1) is learner
    with pytest.raises(TypeError, match="timeout"):
        courier.with_options(learner, timeout=0.1)


def test_what_cannot_be_called_is_refused_with_the_right_way_to_say_it() -> None:
    result: Any = Learner().step(1)

    with pytest.raises(TypeError, match=r"submit\(learner\.step, batch\); got 1"):
        courier.submit(result)
