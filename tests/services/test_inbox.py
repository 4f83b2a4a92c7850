"""Inboxes: values by key, with room for so many, and waits that end."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import launchpad as lp
from tests.waiting import until


def test_values_are_taken_by_key_in_the_order_in_which_they_came() -> None:
    inbox = lp.Inbox[str, int]()
    for key, value in [("a", 1), ("b", 2), ("a", 3), ("c", 4)]:
        assert inbox.put(key, value)

    assert [inbox.take("a"), inbox.take("b"), inbox.take("a")] == [1, 2, 3]
    assert inbox.take_any() == ("c", 4)
    assert len(inbox) == 0


def test_one_that_waits_for_a_key_gets_that_value_and_no_other(threads: ThreadPoolExecutor) -> None:
    inbox = lp.Inbox[int, str]()
    waiting = [threads.submit(inbox.take, key, 20) for key in (1, 2)]
    until(lambda: len(inbox._takers) == 2)

    inbox.put(2, "two")
    inbox.put(3, "three")
    inbox.put(1, "one")

    assert [future.result() for future in waiting] == ["one", "two"]
    assert inbox.keys() == [3]


def test_a_full_one_lets_in_what_is_waited_for(threads: ThreadPoolExecutor) -> None:
    inbox = lp.Inbox[str, int](maxsize=1)
    inbox.put("a", 1)
    taken = threads.submit(inbox.take, "b", 20)
    until(lambda: bool(inbox._takers))
    put = threads.submit(inbox.put, "c", 3, 20)
    until(lambda: bool(inbox._putters))

    assert inbox.put("b", 2)
    assert taken.result() == 2
    assert not put.done()
    assert inbox.take("a") == 1

    assert put.result() is True
    assert inbox.take_any() == ("c", 3)


def test_waits_have_limits_and_end_with_it(threads: ThreadPoolExecutor) -> None:
    inbox = lp.Inbox[str, int](maxsize=1)
    inbox.put("a", 1)

    for wait in (lambda: inbox.put("b", 2, 0.01), lambda: inbox.take("b", 0.01)):
        with pytest.raises(TimeoutError):
            wait()
    waiting = threads.submit(inbox.take, "b")
    until(lambda: bool(inbox._takers))
    inbox.close(KeyError("over"))

    with pytest.raises(KeyError):
        waiting.result(20)
    assert inbox.take("a") == 1  # what is there can be taken
    with pytest.raises(KeyError):
        inbox.put("c", 1)


class Desk:
    """Takes one value, then never again."""

    def __init__(self) -> None:
        self.inbox = lp.Inbox[str, int](maxsize=1)
        self.outcomes: list[bool] = []

    def leave(self, key: str, value: int) -> None:
        self.outcomes.append(self.inbox.put(key, value))

    def seen(self) -> list[bool]:
        return self.outcomes

    def run(self) -> None:
        self.inbox.take("never")


def leave_two(desk: Any) -> None:
    desk.leave("a", 1)
    with contextlib.suppress(TimeoutError):
        desk.with_options(timeout_s=0.3).leave("b", 2)


def test_waits_end_with_the_program_and_with_the_caller() -> None:
    program = lp.Program("desk")
    desk = program.add_node(lp.CourierNode(Desk), label="desk")
    program.add_node(lp.PyNode(leave_two, desk), label="caller")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        running.wait(60, labels=["caller"])
        client = running.client("desk")
        until(lambda: client.seen() == [True, False])

    assert {s.state for s in running.status()} <= {"stopped", "succeeded"}
