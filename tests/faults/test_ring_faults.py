"""F30: nodes that call each other in a ring, and every thread that serves waits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import launchpad as lp
from tests.faults.backends import everywhere

DEADLINE_S = 60


MANY = 600


class Passer:
    """Passes every call on to the next one; the last of many waits."""

    def __init__(self, following: Any) -> None:
        self._following = following

    def pass_on(self, times: int) -> None:
        if times == MANY:
            lp.wait_for_stop()
        else:
            self._following.pass_on(times + 1)


def call_once(passer: Any) -> None:
    passer.pass_on(0)


def cycle_of_two() -> lp.Program:
    program = lp.Program("ring")
    few = {"thread_pool_size": 2}
    a, b = (lp.CourierNode(Passer, None, courier_kwargs=few) for _ in range(2))
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program.add_node(a, label="a")
    program.add_node(b, label="b")
    program.add_node(lp.PyNode(call_once, a.create_handle()), label="caller")
    return program


@everywhere
def test_f30_a_cycle_of_nodes_is_named_and_can_be_stopped(
    launch_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = lp.launch(cycle_of_two(), launch_type)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while "wait for each other" not in (
            said := running.logs("a") + running.logs("b") + caplog.text
        ):
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)
    finally:
        running.stop()

    assert "a-0.pass_on → b-0.pass_on" in said or "b-0.pass_on → a-0.pass_on" in said
    assert {s.state for s in running.status()} == {"stopped"}
