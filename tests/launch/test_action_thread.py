"""Actions: one thread calls one after the other, some of them after a delay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from launchpad.launch.backends.action_thread import Actions

DEADLINE_S = 60.0


@pytest.fixture
def actions() -> Iterator[Actions]:
    actions = Actions("launchpad-test-actions", lambda error: None)
    actions.begin()
    yield actions
    actions.end(lambda: None)


@pytest.mark.parametrize("is_delayed", [True, False])
def test_of_delayed_actions_and_the_inbox_neither_holds_up_the_other(
    actions: Actions, is_delayed: bool
) -> None:
    events: list[str] = []
    is_called = threading.Event()
    has_ended = threading.Event()
    gives_up_at = time.monotonic() + 5

    def call_later(action: Callable[[], object]) -> None:
        actions.call_later(0.0, action)

    def keep_busy() -> None:
        """Have something of the other kind there at any time."""
        if is_called.is_set() or time.monotonic() > gives_up_at:
            events.append("busy no more")
            has_ended.set()
        else:
            again(keep_busy)

    def call() -> None:
        events.append("called")
        is_called.set()

    again = actions.do if is_delayed else call_later
    actions.do(keep_busy)
    actions.do(call_later, call) if is_delayed else actions.do(call)

    assert has_ended.wait(DEADLINE_S)
    assert events == ["called", "busy no more"]


def test_actions_are_called_in_the_order_in_which_they_were_given(actions: Actions) -> None:
    called: list[int] = []
    is_done = threading.Event()

    for number in range(100):
        actions.do(called.append, number)
    actions.do(is_done.set)

    assert is_done.wait(DEADLINE_S)
    assert called == list(range(100))


def test_after_an_action_that_raises_the_next_one_is_called() -> None:
    errors: list[Exception] = []
    actions = Actions("launchpad-test-actions", errors.append)
    actions.begin()
    error = ValueError("an action")
    called: list[str] = []

    def fail() -> None:
        raise error

    actions.do(fail)
    actions.end(lambda: called.append("the last"))

    assert errors == [error]
    assert called == ["the last"]


def test_delayed_actions_are_called_by_their_time_and_equal_ones_in_order(actions: Actions) -> None:
    called: list[str] = []
    is_done = threading.Event()

    def delay() -> None:
        actions.call_later(0.1, is_done.set)
        actions.call_later(0.05, called.append, "second")
        for i in range(100):
            actions.call_later(0.0, called.append, f"first {i}")

    actions.do(delay)

    assert is_done.wait(DEADLINE_S)
    assert called == [*(f"first {i}" for i in range(100)), "second"]
