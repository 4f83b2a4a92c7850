"""What threads note of the calls that they answer and wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from launchpad.courier import call_stack
from launchpad.courier.server.dispatcher import Dispatcher
from tests.courier.conftest import Gate, exit_code_of_child, in_background


def server(address: str = "unix:/b") -> Any:
    """As a client knows it."""
    return SimpleNamespace(address=address, label="B")


@contextlib.contextmanager
def answering(address: str) -> Iterator[None]:
    """Within it, this thread answers `f` of a server A. As `Dispatcher.answer` notes it."""
    methods = Dispatcher("A", address)
    record = call_stack.here.record
    outer, record.innermost = record.innermost, (record.innermost, methods, None, b"f")
    yield
    record.innermost = outer


def test_no_call_waits_for_a_thread_that_answers_none_nor_for_a_server_that_is_nowhere() -> None:
    with call_stack.waiting_for(server(), b"g"):
        assert call_stack.edges() == []
    with answering("unix:/a"), call_stack.waiting_for(server(""), b"g"):
        assert call_stack.edges() == []


def test_of_calls_within_calls_each_waits_for_the_next_one() -> None:
    with (
        answering("unix:/a"),
        call_stack.waiting_for(server("unix:/b"), b"g"),
        answering("unix:/b"),
        call_stack.waiting_for(server("unix:/c"), b"h"),
        call_stack.waiting_for(server("unix:/d"), b"courier/waits"),
    ):
        found = [(edge[0][0], edge[1][0]) for edge in call_stack.edges()]

    assert found == [("unix:/b", "unix:/c"), ("unix:/a", "unix:/b")]


def test_a_thread_knows_its_own_and_a_process_those_of_all_threads(gate: Gate) -> None:
    def wait() -> None:
        with answering("unix:/a"), call_stack.waiting_for(server(), b"g"):
            gate.wait()

    thread = in_background(wait)
    gate.begun.wait(10)
    of_all, of_this = call_stack.find_waits(), call_stack.find_waits(call_stack.here.record)
    gate.set()
    thread.result(10)

    assert len(of_all) == 1
    assert of_this == call_stack.edges() == []


def test_a_call_that_fails_and_a_wait_that_is_interrupted_are_over() -> None:
    methods = Dispatcher("A", "unix:/a")
    methods.bind("f", lambda: 1 / 0)

    methods.answer(b"f", b"nonsense", ())
    with pytest.raises(KeyboardInterrupt), call_stack.waiting_for(server(), b"g"):
        raise KeyboardInterrupt

    assert call_stack.here.record.innermost is None


def test_a_forked_child_has_none_of_its_parents_threads() -> None:
    with answering("unix:/a"), call_stack.waiting_for(server(), b"g"):
        assert len(call_stack.edges()) == 1
        assert exit_code_of_child(lambda: len(call_stack.edges())) == 0
