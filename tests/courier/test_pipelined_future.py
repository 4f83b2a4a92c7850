"""The futures of pipelined calls are those of the standard library, to everything that takes one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from launchpad.courier.client.future import CANCELLED, PipelinedFuture
from launchpad.courier.client.options import Options
from launchpad.courier.telemetry.counters import MethodCounts
from tests.waiting import until


class Holder:
    """A pipeline with one call in it."""

    is_inherited = False

    def __init__(self) -> None:
        self.calls = [1]
        self.call = PipelinedFuture(self, 1, b"m", Options(), MethodCounts(), 0, channel=None)

    def flush(self) -> None:
        pass

    def withdraw(self, call: PipelinedFuture) -> bool:
        if not self.take():
            return False
        call.fail(CANCELLED)
        return True

    def take(self) -> bool:
        return bool(self.calls and self.calls.pop())


def succeed(holder: Holder) -> None:
    if holder.take():
        holder.call.succeed("value", 0)


def fail(holder: Holder) -> None:
    if holder.take():
        holder.call.fail(LookupError("not there"))


def cancel(holder: Holder) -> None:
    holder.call.cancel()


ENDS = pytest.mark.parametrize("end", [succeed, fail, cancel])
End = Callable[[Holder], None]


@pytest.fixture
def holder() -> Holder:
    return Holder()


def outcome(future: Future[Any]) -> object:
    """How `result` ends, and `exception` with it."""
    try:
        value = future.result(10)
    except concurrent.futures.CancelledError:
        assert future.cancelled()
        with pytest.raises(concurrent.futures.CancelledError):
            future.exception(0)
        return "cancelled"
    except LookupError:
        return repr(future.exception(0))
    assert future.exception(0) is None
    return value


def expected(end: End) -> object:
    return {succeed: "value", fail: "LookupError('not there')", cancel: "cancelled"}[end]


@ENDS
def test_what_it_says_of_itself_before_and_after(holder: Holder, end: End) -> None:
    call = holder.call
    before = (call.done(), call.running(), call.cancelled())

    end(holder)

    assert before == (False, False, False)
    assert (call.done(), call.running(), call.cancelled()) == (True, False, end is cancel)
    assert outcome(call) == expected(end)
    assert "state=pending" in repr(Holder().call)
    assert ("state=cancelled" if end is cancel else "state=finished") in repr(call)
    assert call.cancel() is (end is cancel)  # again, or too late


@ENDS
def test_threads_that_wait_for_it_wake(holder: Holder, end: End) -> None:
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(outcome, holder.call) for _ in range(4)]
        until(lambda: holder.call.is_watched)
        end(holder)

        assert {each.result(10) for each in waiting} == {expected(end)}


def test_result_gives_up_when_its_time_has_passed_and_leaves_nothing_behind(holder) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            holder.call.result(timeout=0.001)
    with pytest.raises(TimeoutError):
        holder.call.exception(timeout=0)

    assert holder.call._wait_locks == []


def test_an_error_is_raised_anew_each_time_without_keeping_its_caller_alive(holder) -> None:
    fail(holder)

    for _ in range(3):
        with pytest.raises(LookupError) as caught:
            holder.call.result()

    frames = [entry.frame for entry in caught.traceback]
    assert not any(holder.call in frame.raw.f_locals.values() for frame in frames[1:])


@ENDS
@pytest.mark.parametrize("is_late", [False, True])
def test_callbacks_run_once(holder: Holder, end: End, is_late: bool) -> None:
    notified: list[tuple[int, object]] = []
    add = holder.call.add_done_callback
    if is_late:
        end(holder)

    for i in range(3):
        add(lambda future, i=i: notified.append((i, outcome(future))))
    end(holder)

    until(lambda: len(notified) >= 3)
    assert sorted(notified) == [(i, expected(end)) for i in range(3)]


def test_a_callback_that_ends_its_thread_does_not_end_ours(unix_client_of, monkeypatch) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    may_answer = threading.Event()

    def echo(value: int) -> int:
        may_answer.wait(60)
        return value

    client = unix_client_of(echo=echo)

    def leave(_: object) -> None:
        raise SystemExit

    for i in range(10):
        # Before there is an answer: else it is called here.
        client.futures.echo(i).add_done_callback(leave)
    may_answer.set()

    assert [client.futures.echo(i).result(10) for i in range(3)] == [0, 1, 2]
    until(lambda: len(told) == 10)
    assert {each.exc_type for each in told} == {SystemExit}


@ENDS
def test_wait_takes_it_together_with_other_futures(holder: Holder, end: End) -> None:
    other: Future[int] = Future()
    both = [other, holder.call]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(concurrent.futures.wait, both, 10)
        until(lambda: holder.call.is_watched)
        end(holder)
        first = concurrent.futures.wait(both, 10, concurrent.futures.FIRST_COMPLETED)
        other.set_result(1)
        done, rest = waiting.result(10)

    assert first.done == {holder.call}
    assert (done, rest) == (set(both), set())


@ENDS
def test_an_event_loop_can_await_it(holder: Holder, end: End) -> None:
    async def wait() -> object:
        future = asyncio.wrap_future(holder.call)
        asyncio.get_running_loop().call_soon(end, holder)
        try:
            return await asyncio.wait_for(future, 10)
        except LookupError as error:
            return repr(error)
        except asyncio.CancelledError:
            return "cancelled"

    assert asyncio.run(wait()) == expected(end)


def is_called_back(future: Future[Any]) -> bool:
    notified = threading.Event()
    future.add_done_callback(lambda _: notified.set())
    return notified.wait(10)


@pytest.mark.parametrize(
    "ask",
    [
        lambda future: concurrent.futures.wait([future], 10).done == {future},
        lambda future: list(concurrent.futures.as_completed([future], 10)) == [future],
        lambda future: "state=" in repr(future),
        is_called_back,
        outcome,
    ],
    ids=["wait", "as_completed", "repr", "callback", "result"],
)
def test_who_asks_in_the_very_moment_of_the_outcome_hears_of_it(ask: Callable[..., Any]) -> None:
    """Many times, with one thread that settles and one that asks, started together."""

    def settle(holder: Holder, end: End, start: threading.Barrier) -> None:
        start.wait(10)
        end(holder)

    with ThreadPoolExecutor(1) as pool:
        for end in [succeed, fail, cancel] * 100:
            holder = Holder()
            start = threading.Barrier(2)
            settled = pool.submit(settle, holder, end, start)
            start.wait(10)

            assert ask(holder.call)
            assert settled.result(10) is None
            assert holder.call.done()


def test_who_sets_a_result_himself_does_not_stop_the_others(unix_client_of) -> None:
    gate = threading.Event()
    client = unix_client_of(echo=lambda value: value, wait=gate.wait)

    client.futures.wait().set_result("mine")
    gate.set()

    assert client.futures.echo(2).result(10) == 2
