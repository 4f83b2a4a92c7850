"""Promises: results that are not there yet."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from launchpad.courier.promise import Promise


def test_callbacks_are_called_when_the_result_is_there_also_those_that_come_late() -> None:
    promise, seen = Promise(), []
    promise.then(lambda it: seen.append(("early", it.result())))
    before = list(seen)

    promise.set_result(3)
    promise.then(lambda it: seen.append(("late", it.result())))

    assert before == []
    assert seen == [("early", 3), ("late", 3)]


def test_the_first_outcome_stays() -> None:
    promise, failed = Promise(), Promise()

    answers = [promise.set_result(1), promise.set_result(2), promise.set_exception(KeyError())]
    failed.set_exception(KeyError("gone"))

    assert answers == [True, False, False]
    assert promise.result() == 1
    with pytest.raises(KeyError, match="gone"):
        failed.result()


def test_waiting_ends_when_the_result_is_there_and_who_does_not_wait_is_told() -> None:
    promise = Promise()
    thread = threading.Thread(target=promise.set_result, args=(3,))
    gave_up = not promise.wait(0.001)
    with pytest.raises(RuntimeError, match="not there yet"):
        promise.result()

    thread.start()
    is_there = promise.wait(20)

    thread.join()
    assert gave_up
    assert is_there
    assert promise.result() == 3


def test_cancelling_drops_what_has_not_begun_and_nothing_else() -> None:
    promise, seen, begun = Promise(), [], Promise()
    promise.then(seen.append)
    assert begun.begin()

    are_cancelled = [promise.cancel(), begun.cancel()]
    begun.set_result(3)

    assert are_cancelled == [True, False]
    assert not promise.begin()
    assert seen == [promise]
    with pytest.raises(CancelledError):
        promise.result()
    assert begun.result() == 3


def test_either_the_worker_or_the_canceller_gets_it() -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in range(500):
            promise = Promise()
            begun, cancelled = pool.submit(promise.begin), pool.submit(promise.cancel)

            assert begun.result(20) != cancelled.result(20)


def test_no_callback_is_lost_or_called_twice_while_the_result_comes() -> None:
    with ThreadPoolExecutor(3) as pool:
        for i in range(500):
            promise, seen = Promise(), []
            asked = [pool.submit(promise.then, seen.append) for _ in "ab"]
            pool.submit(promise.set_result, i).result(20)
            for future in asked:
                future.result(20)

            assert [it.result() for it in seen] == [i, i]


def test_a_callback_that_raises_does_not_keep_the_others_from_theirs(monkeypatch) -> None:
    told, seen = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    promise = Promise()
    promise.then(lambda _: 1 / 0)
    promise.then(seen.append)

    is_first = promise.set_result(1)

    assert is_first
    assert told == [ZeroDivisionError]
    assert seen == [promise]
