"""The run context: stop handlers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from launchpad.context import RunContext
from launchpad.interruption import Interruption


@pytest.fixture
def me() -> RunContext:
    return a_context()


def a_context() -> RunContext:
    return RunContext("program", "w-0", "w", 0, 1, 1, 0, "test_mt", {})


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_handler_registered_by_a_handler_is_called_once(me: RunContext) -> None:
    calls: list[str] = []
    me.add_stop_handler(lambda: me.add_stop_handler(lambda: calls.append("inner")))

    me.ask_to_stop()

    assert calls == ["inner"]


@pytest.mark.usefixtures("frequent_switches")
def test_a_handler_registered_while_the_stop_is_asked_is_called_exactly_once() -> None:
    counts = set()

    for _ in range(2000):
        me, calls = a_context(), [0]

        def count(calls: list[int] = calls) -> None:
            calls[0] += 1

        asks = threading.Thread(target=me.ask_to_stop)
        asks.start()
        me.add_stop_handler(count)
        asks.join()
        counts.add(calls[0])

    assert counts == {1}


def test_a_part_of_a_worker_stops_with_it_and_asks_about_it_for_itself(me: RunContext) -> None:
    part = me.part(Interruption())
    calls: list[str] = []
    part.add_stop_handler(lambda: calls.append("part"))

    me.ask_to_stop()

    assert part.stop_event.is_set()
    assert calls == ["part"]
    assert (part.heeds_stop, me.heeds_stop) == (True, False)
