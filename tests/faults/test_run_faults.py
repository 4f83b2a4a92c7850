"""F21, F22, F30–F34: what goes wrong while the program runs. More: test_reports.py, the contract."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.helpers.programs import failure_of, single
from tests.waiting import until


def test_f21_an_exception_whose_attributes_look_odd_is_reported_like_any_other() -> None:
    node = lp.PyNode(nodes.fail_with, ValueError, "\n\nit broke\nlater", ("host", 80))

    outcome = failure_of(single(node)).outcome

    assert (outcome.raised_in, outcome.cause) == ("", "ValueError: it broke")


def test_f22_a_worker_killed_by_sigkill_is_named_and_its_callers_are_not_blamed() -> None:
    program = lp.Program("kill")
    victim = program.add_node(lp.CourierNode(nodes.Counter), label="victim")
    with program.group("client"):
        for _ in range(4):
            program.add_node(lp.PyClassNode(nodes.Caller, victim, 10**9))
    running = lp.launch(program, "test_mp")
    victim_client = running.client("victim")
    victim_client.add()
    until(lambda: running.status()[0].state == "running")  # it serves a moment before it says so

    with pytest.raises(lp.courier.CourierError):
        victim_client.kill_self(signal.SIGKILL)
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(90)

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.phase, outcome.signal) == ("victim-0", "run", "SIGKILL")
    assert "killed by SIGKILL, not by the launcher" in outcome.cause


def test_f33_an_exception_that_does_not_unpickle_is_still_caught_by_its_type() -> None:
    program = single(lp.CourierNode(nodes.Thrower), "thrower")

    with lp.launch(program, "test_mp") as running, running.client("thrower") as thrower:
        with pytest.raises(nodes.TwoArguments, match="this and that") as caught:
            thrower.raise_two_arguments()
        assert thrower.ping() == "pong", "the server must live on"

    assert isinstance(caught.value, lp.courier.RemoteError)
    assert "in raise_two_arguments" in caught.value.traceback


@pytest.mark.parametrize(
    "method", ["recurse", "raise_unpicklable", "raise_two_arguments", "raise_long"]
)
def test_f31_to_f34_a_worker_that_lets_such_an_exception_through_is_named(method: str) -> None:
    program = lp.Program("faults")
    thrower = program.add_node(lp.CourierNode(nodes.Thrower), label="thrower")
    program.add_node(lp.PyNode(nodes.call, thrower, method), label="caller")

    outcome = failure_of(program).outcome

    assert (outcome.worker, outcome.phase) == ("caller-0", "run")
    assert f"in {method}" in outcome.traceback
    assert outcome.raised_in == "thrower-0"


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


def test_f30_a_cycle_of_nodes_is_named_and_can_be_stopped() -> None:
    program = lp.Program("ring")
    few = {"thread_pool_size": 2}
    a, b = (lp.CourierNode(Passer, None, courier_kwargs=few) for _ in range(2))
    a.configure(b.create_handle())
    b.configure(a.create_handle())
    program.add_node(a, label="a")
    program.add_node(b, label="b")
    program.add_node(lp.PyNode(lambda a: a.pass_on(0), a.create_handle()), label="caller")

    with lp.launch(program, "test_mp") as running:
        until(lambda: "wait for each other" in running.logs("a") + running.logs("b"))

    said = running.logs("a") + running.logs("b")
    assert "a-0.pass_on → b-0.pass_on" in said or "b-0.pass_on → a-0.pass_on" in said
    assert {s.state for s in running.status()} == {"stopped"}
