"""Restarts, as every backend carries them out."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.courier import CourierError
from tests.helpers import restarting_nodes
from tests.waiting import until

DEADLINE_S = 90
"""No test takes so long; three pods after each other, on a machine that is busy, may take a third."""
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


def program_of(restart: lp.RestartPolicy | None, *kinds: type, label: str = "tally") -> lp.Program:
    program = lp.Program("restarts")
    with program.group(label, restart=restart):
        for kind in kinds:
            program.add_node(lp.CourierNode(kind))
    return program


def states(running: lp.Running) -> list[tuple[str, int]]:
    return [(s.state, s.attempt) for s in running.status()]


def call_until_answered(call: Callable[[], Any]) -> Any:
    """A caller of a worker that is being restarted may hear that its call was lost."""

    def attempt() -> Any:
        with contextlib.suppress(CourierError):
            return call()

    return until(attempt)


def test_a_failed_worker_is_started_again_and_its_clients_find_it(launch_type: str) -> None:
    with lp.launch(program_of(AT_ONCE, restarting_nodes.Tally), launch_type) as running:
        client: Any = running.client("tally")
        assert (client.attempt(), client.add(), client.add()) == (1, 1, 2)

        client.fail()
        until(lambda: states(running) == [("running", 2)])

        assert call_until_answered(client.attempt) == 2
        assert client.add() == 1
        assert "told to fail" in running.status()[0].cause


def test_the_status_says_which_process_each_attempt_has_and_when_it_began(
    launch_type: str,
) -> None:
    before = time.monotonic()
    with lp.launch(program_of(AT_ONCE, restarting_nodes.Tally), launch_type) as running:
        client: Any = running.client("tally")
        client.fail()
        until(lambda: states(running) == [("running", 2)])
        (status,) = running.status()

        own = call_until_answered(client.pid)
        assert status.pid in (None, own)  # a backend without processes on this host says none
        assert status.started_at is not None
        assert before < status.started_at < time.monotonic()

    assert running.status()[0].pid is None


def test_sound_20_the_status_says_for_how_long_a_worker_still_waits_to_be_started_again(
    launch_type: str,
) -> None:
    twice = lp.RestartPolicy(max_restarts=5, backoff=DEADLINE_S)
    with lp.launch(program_of(twice, restarting_nodes.Tally), launch_type) as running:
        client: Any = running.client("tally")
        client.fail()
        until(lambda: states(running) == [("running", 2)])
        assert running.status()[0].next_start == ""

        with contextlib.suppress(CourierError):
            client.fail()
        until(lambda: states(running) == [("restarting", 2)])

        next_start = running.status()[0].next_start
        assert re.fullmatch(r"again in \d\d s \(2nd within a minute\)", next_start)
        running.stop()
    assert running.status()[0].next_start == ""


def test_a_worker_is_restarted_on_request_whatever_its_policy_says_and_keeps_what_it_saved(
    launch_type: str,
) -> None:
    program = program_of(None, restarting_nodes.Keeper, restarting_nodes.Tally)
    with lp.launch(program, launch_type) as running:
        keeper: Any = running.client("tally", 0)
        assert (keeper.add(), keeper.add()) == (1, 2)

        running.restart("tally-0", "to see what it keeps")
        until(lambda: states(running) == [("running", 2), ("running", 1)])

        assert call_until_answered(keeper.add) == 3
        assert running.status()[0].cause == "to see what it keeps"

    assert running.failure() is None
    with pytest.raises(lp.NotRunningError, match="tally-1 is not started again"):
        running.restart("tally-1")


def test_a_request_restarts_all_of_a_group_whose_policy_restarts_them_together(
    launch_type: str,
) -> None:
    policy = lp.RestartPolicy(scope="group", max_restarts=0)
    kinds = restarting_nodes.Tally, restarting_nodes.Tally
    with lp.launch(program_of(policy, *kinds), launch_type) as running:
        running.restart("tally-1")

        until(lambda: states(running) == [("running", 2), ("running", 2)])


def test_a_thread_of_the_script_is_restarted_on_request(launch_type: str) -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(lp.current().attempt)
        lp.wait_for_stop()

    with lp.launch(program_of(None, restarting_nodes.Tally), launch_type) as running:
        running.thread_worker("mine", work)
        until(lambda: attempts == [1])

        running.restart("mine")

        until(lambda: attempts == [1, 2])


def test_a_worker_that_was_restarted_can_be_stopped_and_ends_well(launch_type: str) -> None:
    with lp.launch(program_of(AT_ONCE, restarting_nodes.Tally), launch_type) as running:
        running.client("tally").fail()
        until(lambda: states(running) == [("running", 2)])

    assert states(running) == [("stopped", 2)]
    assert running.failure() is None


def test_a_group_is_restarted_together_and_what_it_saved_is_restored(launch_type: str) -> None:
    policy = lp.RestartPolicy(scope="group", backoff=0)
    with lp.launch(
        program_of(
            policy,
            restarting_nodes.Keeper,
            restarting_nodes.AsyncKeeper,
            restarting_nodes.Tally,
        ),
        launch_type,
    ) as running:
        keepers: list[Any] = [running.client("tally", i) for i in range(2)]
        for _ in range(3):
            keepers[0].add()
        keepers[1].add()

        running.client("tally", 2).fail()
        until(lambda: states(running) == [("running", 2)] * 3)

        assert [call_until_answered(k.add) for k in keepers] == [4, 2]


def test_the_whole_program_is_restarted_with_a_worker_whose_policy_says_so(
    launch_type: str,
) -> None:
    program = program_of(lp.RestartPolicy(scope="program", backoff=0), restarting_nodes.Tally)
    program.add_node(lp.CourierNode(restarting_nodes.Tally), label="other")

    with lp.launch(program, launch_type) as running:
        running.client("tally").fail()
        until(lambda: states(running) == [("running", 2)] * 2)


def test_f25_a_crash_loop_ends_the_program_and_all_deaths_are_listed(launch_type: str) -> None:
    program = lp.Program("loop")
    policy = lp.RestartPolicy(max_restarts=2, backoff=0)
    with program.group("bad", restart=policy):
        program.add_node(lp.PyNode(restarting_nodes.fail_with_attempt))

    with pytest.raises(lp.ProgramFailed) as failed:
        lp.testing.run(program, DEADLINE_S, launch_type)

    assert failed.value.outcome.cause == "ValueError: attempt 3"
    assert [line.rpartition(": ")[2] for line in failed.value.outcome.earlier] == [
        "attempt 1",
        "attempt 2",
    ]
    assert "max_restarts=2" in str(failed.value)


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_who_opts_out_is_not_started_again(launch_type: str, how: str) -> None:
    program = lp.Program("opts out")
    with program.group("bad", restart=AT_ONCE):
        program.add_node(lp.PyNode(restarting_nodes.opt_out, how))

    with pytest.raises(lp.ProgramFailed) as failed:
        lp.testing.run(program, DEADLINE_S, launch_type)

    assert failed.value.outcome.attempt == 1
    assert "it asked not to be started again" in str(failed.value)


def limit_s(launch_type: str) -> float:
    """How long a start may take: on a cluster a pod, an actor or a task has to be started meanwhile."""
    return {"test_kubernetes": 20, "test_ray": 15, "test_spark": 20}.get(launch_type, 3)


def test_f15_a_constructor_that_takes_too_long_is_ended_and_may_try_again(launch_type: str) -> None:
    policy = lp.RestartPolicy(max_restarts=1, backoff=0, start_timeout_s=limit_s(launch_type))

    with lp.launch(program_of(policy, restarting_nodes.SlowAtFirst), launch_type) as running:
        until(lambda: states(running) == [("running", 2)])

        assert call_until_answered(running.client("tally").attempt) == 2
        assert f"start_timeout_s={limit_s(launch_type):g}" in running.status()[0].cause


def test_f15_a_constructor_that_is_too_slow_for_good_is_named_with_its_stack(
    launch_type: str,
) -> None:
    policy = lp.RestartPolicy(max_restarts=0, start_timeout_s=limit_s(launch_type))

    with pytest.raises(lp.ProgramFailed) as failed:
        lp.testing.run(program_of(policy, restarting_nodes.SlowAtFirst), DEADLINE_S, launch_type)

    ended = failed.value.outcome
    assert (ended.worker, ended.phase, ended.error_type) == ("tally-0", "init", "StartTimeout")
    assert "take_long" in Path(ended.log_path).read_text()


def test_work_that_is_done_is_begun_again_when_the_policy_says_always(launch_type: str) -> None:
    program = lp.Program("always")
    always = lp.RestartPolicy(mode="always", max_restarts=100, backoff=0)
    with program.group("worker", restart=always):
        program.add_node(lp.PyNode(restarting_nodes.stop_at_third))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert states(running) == [("stopped", 3)]


def test_the_state_directory_is_each_worker_s_own_and_survives(launch_type: str) -> None:
    program = lp.Program("state")
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(restarting_nodes.remember))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    for index in range(2):
        left = (running.log_directory / "state" / f"worker-{index}" / "notes").read_text()
        assert left == "".join(f"worker-{index} attempt {n}\n" for n in (1, 2, 3))


def test_hooks_that_want_arguments_are_not_ours(launch_type: str) -> None:
    policy = lp.RestartPolicy(scope="group", backoff=0)
    with lp.launch(
        program_of(policy, restarting_nodes.Loader, restarting_nodes.Tally), launch_type
    ) as running:
        running.client("tally", 1).fail()
        until(lambda: states(running) == [("running", 2)] * 2)

        assert call_until_answered(running.client("tally").ping)


def test_a_restarted_caller_fails_at_once_when_it_calls_who_had_ended_before(
    launch_type: str,
) -> None:
    program = lp.Program("gone")
    short = program.add_node(lp.CourierNode(restarting_nodes.Short), label="short")
    with program.group("caller", restart=AT_ONCE):
        program.add_node(lp.PyNode(restarting_nodes.call_the_gone, short))

    with pytest.raises(lp.ProgramFailed, match="WorkerFailed") as failed:
        lp.testing.run(program, DEADLINE_S, launch_type)

    assert failed.value.outcome.worker == "caller-0"
