"""Restarts, as every backend carries them out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
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
    before = time.monotonic()
    with lp.launch(program_of(AT_ONCE, restarting_nodes.Tally), launch_type) as running:
        client: Any = running.client("tally")
        assert (client.attempt(), client.add(), client.add()) == (1, 1, 2)

        client.fail()
        until(lambda: states(running) == [("running", 2)])

        assert call_until_answered(client.attempt) == 2
        assert client.add() == 1
        (status,) = running.status()
        assert "told to fail" in status.cause
        assert status.pid in (None, client.pid())  # a backend without processes here says none
        assert status.started_at is not None
        assert before < status.started_at < time.monotonic()

    assert states(running) == [("stopped", 2)]
    assert running.status()[0].pid is None
    assert running.failure() is None


def test_a_worker_is_restarted_on_request_and_keeps_what_it_saved(launch_type: str) -> None:
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


def test_a_group_is_restarted_together_with_what_it_saved_also_on_request(launch_type: str) -> None:
    kinds = (
        restarting_nodes.Keeper,
        restarting_nodes.AsyncKeeper,
        restarting_nodes.Tally,
        restarting_nodes.Loader,  # whose hooks want arguments, and so are not ours
    )
    program = program_of(lp.RestartPolicy(scope="group", backoff=0, max_restarts=1), *kinds)
    with lp.launch(program, launch_type) as running:
        keepers: list[Any] = [running.client("tally", i) for i in range(2)]
        for _ in range(3):
            keepers[0].add()
        keepers[1].add()

        running.client("tally", 2).fail()
        until(lambda: states(running) == [("running", 2)] * 4)
        assert [call_until_answered(k.add) for k in keepers] == [4, 2]

        running.restart("tally-2")
        until(lambda: states(running) == [("running", 3)] * 4)
        assert [call_until_answered(k.add) for k in keepers] == [5, 3]
        assert call_until_answered(running.client("tally", 3).ping)


def test_a_thread_of_the_script_is_restarted_on_request() -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(lp.current().attempt)
        lp.wait_for_stop()

    with lp.launch(program_of(None, restarting_nodes.Tally), "test_mp") as running:
        running.thread_worker("mine", work)
        until(lambda: attempts == [1])
        running.restart("mine")
        until(lambda: attempts == [1, 2])


@pytest.mark.slow
def test_f15_a_constructor_that_is_too_slow_is_ended_and_may_try_again(launch_type: str) -> None:
    # On a cluster a pod, an actor or a task has to be started meanwhile.
    limit_s = {"test_kubernetes": 15, "test_ray": 10, "test_spark": 15}.get(launch_type, 3)
    policy = lp.RestartPolicy(max_restarts=2, backoff=0, start_timeout_s=limit_s)

    with lp.launch(program_of(policy, restarting_nodes.SlowAtFirst), launch_type) as running:
        client: Any = running.client("tally")
        assert call_until_answered(client.attempt) >= 2

        assert f"start_timeout_s={limit_s}" in running.status()[0].cause
    assert "take_long" in running.logs("tally")


def test_the_state_directory_is_each_worker_s_own_and_survives(launch_type: str) -> None:
    program = lp.Program("state")
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(restarting_nodes.remember))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    for index in range(2):
        left = (running.log_directory / "state" / f"worker-{index}" / "notes").read_text()
        assert left == "".join(f"worker-{index} attempt {n}\n" for n in (1, 2, 3))


def test_a_call_to_a_server_that_has_ended_fails_at_once_also_later(launch_type: str) -> None:
    program = lp.Program("gone")
    short = program.add_node(lp.CourierNode(restarting_nodes.Short), label="short")
    with program.group("caller", restart=AT_ONCE):
        program.add_node(lp.PyNode(restarting_nodes.call_the_gone, short))

    running = lp.testing.run(program, DEADLINE_S, launch_type)

    assert running.logs("caller").count("short-0 succeeded") == 2
