"""Timeouts, wherever one is given: a NaN is refused at once, since a wait until it would never be over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import launchpad as lp
from launchpad import courier
from launchpad.runtime.watermarks import Watermarks
from launchpad.services.inbox import Inbox

NAN = float("nan")


def program_of_waits() -> lp.Program:
    program = lp.Program("waits")
    program.add_node(lp.QueueNode(maxsize=1), label="queue")
    program.add_node(lp.WorkQueueNode(), label="jobs")
    program.add_node(lp.CounterNode(), label="counter")
    return program


WAITS: dict[str, Callable[[Any, Any, Any, lp.Running], object]] = {
    "put": lambda queue, jobs, counter, running: queue.put(2, NAN),
    "put_many": lambda queue, jobs, counter, running: queue.put_many([2], NAN),
    "get": lambda queue, jobs, counter, running: queue.get(NAN),
    "get_many": lambda queue, jobs, counter, running: queue.get_many(2, NAN, at_least=2),
    "take": lambda queue, jobs, counter, running: jobs.take(NAN),
    "results of jobs": lambda queue, jobs, counter, running: next(jobs.results(NAN)),
    "wait_for": lambda queue, jobs, counter, running: counter.wait_for(timeout_s=NAN, steps=1),
    "wait": lambda queue, jobs, counter, running: running.wait(NAN),
    "results": lambda queue, jobs, counter, running: running.results("queue", NAN),
}


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_sound_21_no_wait_of_a_program_takes_a_nan_as_its_timeout(launch_type: str) -> None:
    refusals = {}

    with lp.launch(program_of_waits(), launch_type) as running:
        queue, jobs, counter = (running.client(name) for name in ("queue", "jobs", "counter"))
        queue.put(1)
        for name, wait in WAITS.items():
            try:
                wait(queue, jobs, counter, running)
            except ValueError as error:
                refusals[name] = str(error)
        assert queue.get(1.0) == 1
        with pytest.raises(TimeoutError):
            jobs.take(0.01)

    assert refusals == dict.fromkeys(
        WAITS, "a timeout is a number of seconds, or None for no limit, not nan"
    )


@pytest.mark.parametrize(
    "wait",
    [
        lambda: Inbox[int, int]().take(1, NAN),
        lambda: Watermarks().wait_for(lambda: False, NAN),
        lambda: courier.Client("unix:/nowhere", call_timeout=NAN),
    ],
)
def test_sound_21_no_other_wait_takes_a_nan_as_its_timeout(wait: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="not nan"):
        wait()


def test_a_refused_timeout_leaves_nothing_behind_in_an_inbox() -> None:
    inbox = Inbox[int, int](maxsize=1)
    with pytest.raises(ValueError, match="not nan"):
        inbox.take(1, NAN)

    inbox.put(1, 2)

    assert inbox.take(1) == 2
