"""F21, F22, F24, F31–F34: what goes wrong while the program runs."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.faults.backends import both, everywhere, processes
from tests.waiting import until


@pytest.fixture(params=["test_mt", "test_mp"])
def thrower(request: pytest.FixtureRequest) -> Any:
    """A client of a node that raises what is hard to send."""
    program = lp.Program("faults")
    program.add_node(lp.CourierNode(nodes.Thrower), label="thrower")
    with lp.launch(program, request.param) as running, running.client("thrower") as client:
        yield client
        assert client.ping() == "pong", "the server must live on"


@everywhere
def test_f21_an_exception_in_run_fails_the_program_with_the_first_cause_and_stops_the_others(
    launch_type: str,
) -> None:
    program = lp.Program("run")
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    program.add_node(lp.PyClassNode(nodes.FailsInRun, server), label="bad")
    running = lp.launch(program, launch_type)

    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(90)

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.phase, outcome.error_type) == ("bad-0", "run", "ValueError")
    assert outcome.cause == "ValueError: it broke"
    assert "raise ValueError" in outcome.traceback
    assert Path(outcome.log_path).exists()
    assert {s.worker: s.state for s in running.status()} == {
        "server-0": "stopped",
        "loop-0": "stopped",
        "bad-0": "failed",
    }


@both
def test_f21_the_first_cause_is_a_dead_server_not_its_clients(launch_type: str) -> None:
    program = lp.Program("run")
    bad = program.add_node(lp.CourierNode(nodes.FailsInInit), label="bad")
    with program.group("client"):
        for _ in range(4):
            program.add_node(lp.PyNode(nodes.add_once, bad))

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert caught.value.worker == "bad-0"
    assert caught.value.phase == "init"


@both
def test_f21_an_exception_with_attributes_named_like_ours_is_reported_like_any_other(
    launch_type: str,
) -> None:
    program = lp.Program("run")
    node = lp.PyNode(nodes.fail_with, KeyError, "\n\nit broke\nlater", ("host", 80))
    program.add_node(node, label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert caught.value.outcome.raised_in == ""
    assert "it broke" in caught.value.outcome.cause


@both
def test_f21_a_message_that_begins_with_an_empty_line_is_a_cause_all_the_same(
    launch_type: str,
) -> None:
    program = lp.Program("run")
    program.add_node(lp.PyNode(nodes.fail_at_once, "\nfirst\nsecond"), label="bad")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    assert caught.value.outcome.cause == "ValueError: first"


@processes
def test_f22_a_worker_killed_by_sigkill_is_named_and_its_callers_are_not_blamed(
    launch_type: str,
) -> None:
    program = lp.Program("kill")
    victim = program.add_node(lp.CourierNode(nodes.Counter), label="victim")
    with program.group("client"):
        for _ in range(4):
            program.add_node(lp.PyClassNode(nodes.Caller, victim, 10**9))
    running = lp.launch(program, launch_type)
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


@processes
def test_f24_a_worker_that_segfaults_is_named_with_its_stack(launch_type: str) -> None:
    program = lp.Program("segfault")
    program.add_node(lp.CourierNode(nodes.Counter), label="victim")
    running = lp.launch(program, launch_type)

    with pytest.raises(lp.courier.CourierError):
        running.client("victim").segfault()
    with pytest.raises(lp.ProgramFailed) as caught:
        running.wait(90)

    assert caught.value.worker == "victim-0"
    assert "SIGSEGV" in caught.value.outcome.cause
    assert "in segfault" in running.logs("victim")


def test_f31_endless_recursion_is_a_recursion_error_at_the_caller(thrower: Any) -> None:
    with pytest.raises(RecursionError):
        thrower.recurse()


def test_f32_a_result_that_cannot_be_pickled_is_described(thrower: Any) -> None:
    with pytest.raises(lp.courier.RemoteError, match="lock") as caught:
        thrower.return_a_lock()

    assert "lock" in caught.value.type_name
    assert caught.value.remote_repr.startswith("<unlocked _thread.lock")
    assert caught.value.server == "thrower-0"


def test_f32_an_exception_that_cannot_be_pickled_is_described_with_its_traceback(
    thrower: Any,
) -> None:
    with pytest.raises(lp.courier.RemoteError, match="holds a lock") as caught:
        thrower.raise_unpicklable()

    assert "Unpicklable" in caught.value.type_name
    assert "in raise_unpicklable" in caught.value.traceback


def test_f33_an_exception_that_does_not_unpickle_is_still_caught_by_its_type(thrower: Any) -> None:
    with pytest.raises(nodes.TwoArguments, match="this and that") as caught:
        thrower.raise_two_arguments()

    assert isinstance(caught.value, lp.courier.RemoteError)
    assert "in raise_two_arguments" in caught.value.traceback


def test_f34_a_200_kb_traceback_arrives_whole(thrower: Any) -> None:
    with pytest.raises(ValueError, match=r"END$") as caught:
        thrower.raise_long()

    assert len(str(caught.value)) == 200_003
    assert "END" in str(caught.value.__cause__)


def test_a_method_that_exits_ends_neither_the_server_nor_the_caller(thrower: Any) -> None:
    with pytest.raises(lp.courier.RemoteError, match="SystemExit"):
        thrower.exit()


@both
@pytest.mark.parametrize(
    "method", ["recurse", "raise_unpicklable", "raise_two_arguments", "raise_long"]
)
def test_f31_to_f34_a_worker_that_lets_such_an_exception_through_is_named(
    launch_type: str, method: str
) -> None:
    program = lp.Program("faults")
    thrower = program.add_node(lp.CourierNode(nodes.Thrower), label="thrower")
    program.add_node(lp.PyNode(nodes.call, thrower, method), label="caller")

    with pytest.raises(lp.ProgramFailed) as caught:
        lp.testing.run(program, 20, launch_type)

    outcome = caught.value.outcome
    assert (outcome.worker, outcome.phase) == ("caller-0", "run")
    assert f"in {method}" in outcome.traceback
    assert outcome.raised_in == "thrower-0"
