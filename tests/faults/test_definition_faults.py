"""F06, F07: faults of the definition that only show when the program runs. The others are in test_plan.py."""

from __future__ import annotations

import time

import pytest

import launchpad as lp
from tests import nodes

both = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])


@pytest.mark.timing
@both
def test_f06_constructors_that_call_each_other_are_named_within_5_s(launch_type: str) -> None:
    a, b = lp.CourierNode(nodes.CallsInInit), lp.CourierNode(nodes.CallsInInit)
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")
    began = time.monotonic()

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert time.monotonic() - began < 5
    assert caught.value.phase == "init"
    assert caught.value.outcome.error_type == "deadlock"
    assert "a-0 → b-0 → a-0" in str(caught.value) or "b-0 → a-0 → b-0" in str(caught.value)
    assert "run()" in caught.value.outcome.hint


@pytest.mark.timing
@both
def test_f06_deferreds_that_call_each_other_are_named_within_5_s(launch_type: str) -> None:
    a, b = lp.CourierNode(nodes.CallsInDeferred), lp.CourierNode(nodes.CallsInDeferred)
    a.configure(lp.Deferred(nodes.answer_of, b.create_handle()))
    b.configure(lp.Deferred(nodes.answer_of, a.create_handle()))
    program = lp.Program("ring")
    program.add_node(a, label="a")
    program.add_node(b, label="b")
    began = time.monotonic()

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert time.monotonic() - began < 5
    assert (caught.value.phase, caught.value.outcome.error_type) == ("init", "deadlock")


@both
def test_f07_a_handle_used_after_the_stop_says_which_program_and_what_to_do(
    launch_type: str,
) -> None:
    program = lp.Program("the program")
    handle = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    with lp.launch(program, launch_type) as running:
        assert handle.dereference().add() == 1

    with pytest.raises(lp.NotRunningError, match=r"'the program'.*Launch the program first"):
        handle.dereference()
    with pytest.raises(lp.NotRunningError, match="has ended"):
        running.client("counter")
