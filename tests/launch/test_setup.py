"""`setup=`: what runs first in each process of a worker."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest

import launchpad as lp
from tests.helpers import setup_nodes

AT_ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)


@pytest.fixture(autouse=True)
def nothing_is_set_up() -> Iterator[None]:
    yield
    setup_nodes.DONE.clear()


def program_with_setup() -> lp.Program:
    program = lp.Program("set-up", setup=setup_nodes.set_up_program)
    with program.group("both", setup=setup_nodes.set_up_group):
        for _ in range(2):
            program.add_node(lp.PyNode(setup_nodes.look, setup_nodes.Looks()))
    with program.group("restarted", restart=AT_ONCE):
        program.add_node(lp.PyNode(setup_nodes.look_again, setup_nodes.Looks()))
    return program


def test_each_process_is_set_up_first_and_again_after_a_restart() -> None:
    results = lp.run(program_with_setup(), "test_mp")

    for before, now, pids, pid in results["both"]:
        assert before == now == ["program", "group"]
        assert pids == {pid}
    ((before, now, pids, pid),) = results["restarted"]
    assert before == now == ["program"]
    assert pids == {pid}
    assert not setup_nodes.DONE


def test_on_threads_each_is_set_up_once() -> None:
    lp.run(program_with_setup(), "test_mt")

    assert sorted(setup_nodes.DONE) == [("group", os.getpid()), ("program", os.getpid())]


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_setup_that_fails_is_the_workers_failure(launch_type: str) -> None:
    program = lp.Program("set-up", setup=setup_nodes.fail)
    program.add_node(lp.PyNode(setup_nodes.look, setup_nodes.Looks()), label="worker")

    with pytest.raises(lp.ProgramFailed, match="worker-0 failed in import") as failed:
        lp.run(program, launch_type)

    assert "no such environment" in str(failed.value)


@pytest.mark.parametrize("setup", ["torch", lambda seed: seed, lambda: (yield)])
def test_what_cannot_be_called_without_arguments_is_refused_where_it_is_given(
    setup: object,
) -> None:
    with pytest.raises(lp.DefinitionError, match=r"setup= (of program|takes a function)|setup="):
        lp.Program("set-up", setup=setup)  # type: ignore[arg-type]


def test_a_plan_with_a_setup_is_json() -> None:
    plan = lp.plan(program_with_setup(), "test_mp")

    assert len(json.loads(plan.to_json())["workers"]) == 3


def test_what_cannot_be_sent_is_named_before_anything_starts() -> None:
    lock = threading.Lock()
    program = lp.Program("set-up", setup=lambda: lock.acquire(timeout=0))
    program.add_node(lp.PyNode(setup_nodes.look, setup_nodes.Looks()), label="worker")

    with pytest.raises(lp.PayloadError, match="setup= of program 'set-up'"):
        lp.plan(program, "test_mp")
