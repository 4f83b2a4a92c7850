"""Kills: whom they strike, when, and that they say so."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.testing import KillWorkers
from tests.helpers.programs import single
from tests.waiting import until

DEADLINE_S = 30
FOREVER = lp.RestartPolicy(max_restarts=10**6, backoff=0)
both = pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])


class Server:
    def attempt(self) -> int:
        return lp.current().attempt


class Runner:
    def run(self) -> None:
        lp.wait_for_stop()


class Deaf:
    """Keeps every exception to itself, and ends well."""

    def run(self) -> None:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)


class SlowStart(Server):
    def __init__(self) -> None:
        started = time.monotonic()
        while lp.current().attempt == 1 and time.monotonic() - started < 30:  # it is killed at once
            time.sleep(0.01)


class SlowStop(Server):
    def run(self) -> None:
        lp.wait_for_stop()
        time.sleep(5)  # it is killed at once


def program_of(**groups: type) -> lp.Program:
    program = lp.Program("kills")
    for label, kind in groups.items():
        with program.group(label, restart=FOREVER):
            program.add_node(lp.CourierNode(kind))
    return program


@both
def test_a_worker_is_killed_once_for_each_time_that_it_runs(launch_type: str) -> None:
    with lp.launch(program_of(victim=Server, other=Server), launch_type) as running:
        with KillWorkers(running, ["victim"], at_most=3, with_signal=signal.SIGABRT) as kills:
            until(lambda: len(kills.done) == 3)
        until(lambda: [s.attempt for s in running.status()] == [4, 1])
        until(lambda: running.status()[0].state == "running")
        cause = running.status()[0].cause

    assert [(k.worker, k.attempt, k.state) for k in kills.done] == [
        ("victim-0", n, "running") for n in (1, 2, 3)
    ]
    assert {k.how for k in kills.done} == {"SIGABRT" if launch_type == "test_mp" else "Stopped"}
    assert "SIGABRT" in cause or launch_type == "test_mt"
    assert str(kills) == "3 kills (seed 0): victim-0 × 3"
    assert re.fullmatch(
        r"victim-0 \(attempt 1, running\) by S\w+ at \d+\.\d{1,3} s", str(kills.done[0])
    )


@pytest.mark.parametrize("kind", [Server, Runner, Deaf])
def test_a_thread_that_is_killed_has_failed_however_it_takes_it(kind: type) -> None:
    with lp.launch(program_of(victim=kind), "test_mt") as running:
        with KillWorkers(running, at_most=1):
            until(lambda: running.status()[0].attempt == 2)
        (status,) = running.status()

    assert "killed by" in status.cause


@both
def test_a_worker_is_killed_while_it_starts(launch_type: str) -> None:
    with (
        lp.launch(program_of(victim=SlowStart), launch_type) as running,
        KillWorkers(running, when="starting", after_s=0.1, at_most=1) as kills,
    ):
        assert running.client("victim").attempt() == 2

    assert [(k.attempt, k.state) for k in kills.done] == [(1, "starting")]


class SlowHandler(Server):
    """Its run() ends when the stop is asked for, long before the handler does."""

    def run(self) -> None:
        lp.register_stop_handler(lambda: threading.Event().wait(0.3))
        lp.wait_for_stop()


@pytest.mark.parametrize("serves_on", ["in a colocation", "until the program stops"])
def test_one_that_is_killed_has_not_done_its_work_though_its_run_ended(serves_on: str) -> None:
    program = lp.Program("kills")
    node: lp.Node[Any] = lp.CourierNode(SlowHandler)
    until_run = serves_on == "in a colocation"
    if until_run:
        node = lp.MultiThreadingColocation([lp.CourierNode(Server), lp.PyClassNode(SlowHandler)])
    with program.group("node", restart=FOREVER, serves_until="run" if until_run else "program"):
        program.add_node(node)

    with lp.launch(program, "test_mt") as running, running.client("node") as client:
        assert client.attempt() == 1
        with KillWorkers(running, at_most=1):
            until(lambda: running.status()[0].attempt == 2)

        assert client.with_options(idempotent=True).attempt() == 2


def test_a_worker_is_killed_while_it_stops() -> None:
    running = lp.launch(program_of(victim=SlowStop), "test_mp")
    assert running.client("victim").attempt() == 1

    with KillWorkers(running, when="stopping") as kills:
        running.stop()

    assert [(k.attempt, k.state, k.how) for k in kills.done] == [(1, "stopping", "SIGKILL")]


def test_the_dice_depend_on_the_seed_the_worker_and_the_attempt_and_on_nothing_else() -> None:
    with lp.launch(program_of(victim=Server), "test_mt") as running:
        kills = [KillWorkers(running, seed=s, chance=0.5, after_s=3, every_s=2) for s in (1, 1, 2)]

    def draws(kills: KillWorkers, worker: str = "victim-0", attempt: int = 1) -> list[Any]:
        dice = kills._draws(worker, attempt)
        return [next(dice) for _ in range(20)]

    first, again, other = kills
    assert draws(first) == draws(again)
    assert draws(first) != draws(other)
    assert draws(first) != draws(first, "victim-1")
    assert draws(first) != draws(first, attempt=2)
    assert all(3 + 2 * i <= at < 5 + 2 * i for i, (at, _) in enumerate(draws(first)))
    assert {dies for _, dies in draws(first)} == {True, False}


def test_kills_refuse_what_could_never_kill() -> None:
    with lp.launch(program_of(victim=Server), "test_mt") as running:
        with pytest.raises(KeyError, match="victin"):
            KillWorkers(running, ["victin"])
        with pytest.raises(TypeError, match=r"\['victim'\]"):
            KillWorkers(running, "victim")
        with pytest.raises(ValueError, match="starting, running, stopping"):
            KillWorkers(running, when="born")
        with pytest.raises(ValueError, match="from 0 to 1"):
            KillWorkers(running, chance=20)


def crash_once() -> int:
    try:
        if lp.current().attempt == 1:
            lp.testing.crash()
    finally:
        print("cleans up")
    return lp.current().attempt


@both
def test_a_worker_that_crashes_ends_there_and_is_started_again(launch_type: str) -> None:
    program = single(lp.PyNode(crash_once), restart=lp.RestartPolicy(backoff=0))

    with lp.launch(program, launch_type) as running:
        results = running.results("worker", DEADLINE_S)
        log = running.logs("worker-0")

    assert results == [2]
    n_cleaned = {"test_mp": 1, "test_mt": 2}  # a process that is killed cleans up nothing
    assert log.count("cleans up") == n_cleaned[launch_type]


class Mortal:
    saved: int | None = None

    @lp.idempotent
    def attempt(self) -> tuple[int, int | None]:
        if lp.current().attempt == 1:
            lp.testing.crash()
        return lp.current().attempt, self.saved

    def save(self) -> int:
        return lp.current().attempt

    def restore(self, saved: int) -> None:
        self.saved = saved


@both
def test_a_server_that_crashes_in_a_call_saves_nothing(launch_type: str, tmp_path: Path) -> None:
    program = lp.Program("crash")
    with program.group("server", restart=lp.RestartPolicy(backoff=0)):
        server = program.add_node(lp.CourierNode(Mortal))
    program.add_node(lp.PyNode(lambda server: server.attempt(), server), label="asker")

    results = lp.run(program, launch_type, timeout_s=DEADLINE_S, state=tmp_path)

    assert results["asker"] == [(2, None)]
