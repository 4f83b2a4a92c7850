"""Later: a result that is not there yet."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from launchpad.courier.promise import Promise


def test_a_callback_is_called_when_the_result_is_there() -> None:
    later, seen = Promise(), []
    later.then(lambda it: seen.append(it.result()))
    before = list(seen)

    later.set_result(3)

    assert before == []
    assert seen == [3]


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    later, seen = Promise(), []
    later.set_result(3)

    later.then(lambda it: seen.append(it.result()))

    assert seen == [3]


def test_an_exception_is_raised_as_the_result() -> None:
    later = Promise()

    later.set_exception(KeyError("gone"))

    with pytest.raises(KeyError, match="gone"):
        later.result()


def test_the_first_outcome_stays() -> None:
    later, seen = Promise(), []
    later.then(seen.append)

    answers = [later.set_result(1), later.set_result(2), later.set_exception(KeyError())]

    assert answers == [True, False, False]
    assert later.result() == 1
    assert seen == [later]


def test_a_result_that_is_not_there_says_so() -> None:
    with pytest.raises(RuntimeError, match="not there yet"):
        Promise().result()


def test_waiting_ends_when_the_result_is_there() -> None:
    later = Promise()
    thread = threading.Thread(target=later.set_result, args=(3,))
    gave_up = not later.wait(0.001)

    thread.start()
    is_there = later.wait(20)

    thread.join()
    assert gave_up
    assert is_there
    assert later.result() == 3


def test_cancelling_drops_what_has_not_begun() -> None:
    later, seen = Promise(), []
    later.then(seen.append)

    is_cancelled = later.cancel()

    assert is_cancelled
    assert not later.begin()
    assert seen == [later]
    with pytest.raises(CancelledError):
        later.result()


def test_cancelling_does_nothing_to_what_has_begun() -> None:
    later = Promise()
    assert later.begin()

    is_cancelled = later.cancel()
    later.set_result(3)

    assert not is_cancelled
    assert later.result() == 3


def test_either_the_worker_or_the_canceller_gets_it() -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in range(500):
            later = Promise()
            begun, cancelled = pool.submit(later.begin), pool.submit(later.cancel)

            assert begun.result(20) != cancelled.result(20)


def test_no_callback_is_lost_or_called_twice_while_the_result_comes() -> None:
    with ThreadPoolExecutor(3) as pool:
        for i in range(500):
            later, seen = Promise(), []
            asked = [pool.submit(later.then, seen.append) for _ in "ab"]
            pool.submit(later.set_result, i).result(20)
            _ = [future.result(20) for future in asked]

            assert [it.result() for it in seen] == [i, i]


def test_a_callback_that_raises_does_not_keep_the_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, seen = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    later = Promise()
    later.then(lambda _: 1 / 0)
    later.then(seen.append)

    is_first = later.set_result(1)

    assert is_first
    assert told == [ZeroDivisionError]
    assert seen == [later]
