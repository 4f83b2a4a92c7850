"""What a typed client is used with: `submit` and `with_options`."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from launchpad import courier


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
def learner(serve, connect, address) -> courier.Client[Any]:
    serve(address).bind_object(Learner())
    return connect(address)


def test_a_submitted_call_is_answered_in_its_future_as_by_the_method(learner) -> None:
    heavy = functools.partial(learner.step, weight=5)

    futures = [courier.submit(learner.step, i, weight=10) for i in range(100)]
    others = [
        courier.submit(heavy, 2),
        courier.submit(heavy, 2, weight=3),
        courier.submit(learner.predict, 2),  # a coroutine, awaited by the server
        courier.submit(learner, "why"),
    ]

    assert [future.result(10) for future in futures] == [i * 10 for i in range(100)]
    assert [future.result(10) for future in others] == [10, 6, 3, "WHY"]


def test_the_error_of_a_submitted_call_is_in_its_future(learner) -> None:
    error = courier.submit(learner.step, -1).exception(10)

    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, courier.RemoteTraceback)
    assert isinstance(courier.submit(learner.stepp, 1).exception(10), courier.MethodNotFound)


def test_submit_does_not_wait_and_keeps_the_options_of_its_client(client_of, gate) -> None:
    client = client_of(wait=lambda: gate.wait(20))

    future = courier.submit(client.wait)
    hasty = courier.submit(courier.with_options(client, timeout_s=0.1).wait)

    assert isinstance(hasty.exception(10), courier.DeadlineExceeded)
    assert not future.done()
    gate.set()
    assert future.result(10) is True


def test_the_method_of_an_object_that_is_here_is_called_at_once() -> None:
    learner = Learner()

    futures = [courier.submit(learner.step, 2, weight=3), courier.submit(learner.predict, 2)]

    assert [future.result(0) for future in futures] == [6, 3]
    assert isinstance(courier.submit(learner.step, -1).exception(0), ValueError)
    assert courier.submit(learner, "why").result(0) == "WHY"
    assert courier.submit(functools.partial(learner.step, 2), weight=4).result(0) == 8


def test_an_object_in_the_place_of_its_client_takes_options_and_is_submitted_by_its_method() -> (
    None
):
    learner: Any = Learner()

    assert courier.with_options(learner, timeout_s=0.1) is learner
    with pytest.raises(TypeError, match="timeout"):
        courier.with_options(learner, timeout=0.1)
    with pytest.raises(TypeError, match=r"submit\(learner\.step, batch\); got 1"):
        courier.submit(learner.step(1))
